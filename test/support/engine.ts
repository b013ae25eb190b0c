import { Writable } from 'node:stream'
import { pino } from 'pino'
import type { Engine } from '../../src/engine/engine.ts'
import type { EngineOptions } from '../../src/engine/engine-settings.ts'
import { createEngine } from '../../src/index.ts'
import { createTestDatabase, type TestDatabase } from './database.ts'

/** A line of an engine's log. */
export interface LogLine {
  level: number
  msg: string
  [key: string]: unknown
}

/** An event as tests look at it. */
export interface LoggedEvent {
  kind: string
  from: string | null
  to: string | null
  phase: string
  wave: number
  attempt: number
  version: number
  actor: string
  reason: string | null
  // biome-ignore lint/suspicious/noExplicitAny: a test knows what it looks for.
  detail: any
}

/** An engine on a database, with what tests look at. */
export interface TestEngine {
  readonly engine: Engine
  readonly test: TestDatabase
  readonly log: readonly LogLine[]
  /** Errors of `fatal`. */
  readonly fatal: readonly unknown[]
  events(id: string): Promise<LoggedEvent[]>
  /** Stops the engine, and drops the database if it was made for it. */
  close(): Promise<void>
}

/**
 * Makes an engine, started unless told otherwise, on a database of its own unless one is given. Short intervals, so that
 * tests need not wait for them.
 */
export async function createTestEngine(
  options: Partial<EngineOptions> & { test?: TestDatabase; start?: boolean } = {},
): Promise<TestEngine> {
  const { test: given, start = true, ...engineOptions } = options
  const test = given ?? (await createTestDatabase())
  const log: LogLine[] = []
  const stream = new Writable({
    write(chunk, _encoding, done) {
      log.push(JSON.parse(String(chunk)) as LogLine)
      done()
    },
  })
  const engine = createEngine({
    connectionString: test.connectionString,
    schema: test.schema,
    heartbeat: 500,
    grace: 2000,
    logger: pino({ level: 'debug' }, stream),
    ...engineOptions,
  })
  const fatal: unknown[] = []
  engine.on('fatal', (error) => fatal.push(error))
  const close = async () => {
    await engine.stop()
    if (!given) await test.drop()
  }
  try {
    if (start) await engine.start()
  } catch (error) {
    await close()
    throw error
  }
  return {
    engine,
    test,
    log,
    fatal,
    async events(id) {
      const { rows } = await test.pool.query<LoggedEvent>(
        `select kind, "from", "to", phase, wave, attempt, version, actor, reason, detail
         from ${test.schema}.job_event where job_id = $1 order by version`,
        [id],
      )
      return rows
    },
    close,
  }
}
