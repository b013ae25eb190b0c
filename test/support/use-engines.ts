import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, expect } from 'vitest'
import type { AnyDefinition } from '../../src/index.ts'
import { createTestDatabase, type TestDatabase } from './database.ts'
import { createTestEngine, type TestEngine } from './engine.ts'
import { findViolations } from './invariants.ts'

/** One database for the tests of a file, and engines on it. */
export interface Engines {
  /** Not before the first test. */
  readonly database: TestDatabase
  /** An engine that is closed after the test. */
  engineWith(jobs: AnyDefinition[], options?: Parameters<typeof createTestEngine>[0]): Promise<TestEngine>
  /** Runs one job of a definition to its end. */
  run(
    definition: AnyDefinition,
    others?: AnyDefinition[],
  ): Promise<TestEngine & { id: string; end: Awaited<ReturnType<TestEngine['engine']['waitFor']>> }>
}

/** Longest wait for a job. */
export const deadline = { timeoutMs: 30_000 }

/** A type of the test's own, so that tests of one file do not run each other's jobs. */
export const named = (what: string) => `${what}-${randomUUID()}`

/** Sets up the engines of a test file. After each test they are closed, and every invariant must hold. */
export function useEngines(): Engines {
  let database: TestDatabase
  const open: TestEngine[] = []
  beforeAll(async () => {
    database = await createTestDatabase()
  })
  afterEach(async () => {
    await Promise.all(open.splice(0).map((one) => one.close()))
    expect(await findViolations(database.pool, { schema: database.schema })).toEqual([])
  })
  afterAll(async () => {
    await database.drop()
  })
  const engines: Engines = {
    get database() {
      return database
    },
    async engineWith(jobs, options = {}) {
      const one = await createTestEngine({ test: database, jobs, ...options })
      open.push(one)
      return one
    },
    async run(definition, others = []) {
      const one = await engines.engineWith([definition, ...others])
      const handle = await one.engine.enqueue(definition.with())
      return { ...one, id: handle.id, end: await one.engine.waitFor(handle.id, deadline) }
    },
  }
  return engines
}
