import { type ChildProcess, spawn } from 'node:child_process'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { createEngine, type Engine } from '../../src/index.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { findViolations } from '../support/invariants.ts'
import { until } from '../support/until.ts'

const CHILDREN = 2600
const WORKER = new URL('../support/programs/streaming-worker.ts', import.meta.url).pathname

let database: TestDatabase
let engine: Engine
const workers: ChildProcess[] = []
beforeAll(async () => {
  database = await createTestDatabase()
  engine = createEngine({ connectionString: database.connectionString })
})
afterEach(() => {
  for (const worker of workers) worker.kill('SIGKILL')
})
afterAll(async () => {
  await engine.stop()
  await database.drop()
})

function startWorker(): ChildProcess {
  const worker = spawn(process.execPath, ['--import', 'tsx', WORKER, database.connectionString, String(CHILDREN)], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  workers.push(worker)
  return worker
}

const count = async (sql: string): Promise<number> =>
  (await database.pool.query(`select count(*)::int n ${sql}`)).rows[0].n

test('a worker killed in the middle of a stream: the next one adds what is missing, and no child is there twice', async () => {
  const { id } = await engine.enqueue({ type: 'streaming', maxRetries: 10 })
  // Twice, each time a chunk further at least.
  for (const least of [500, 1500]) {
    const worker = startWorker()
    await until(async () => (await count(`from coppice.job where type = 'streamed'`)) >= least, { timeout: 40_000 })
    worker.kill('SIGKILL')
  }
  const left = await count(`from coppice.job where type = 'streamed'`)
  expect(left % 500).toBe(0)
  expect(left).toBeLessThan(CHILDREN)
  startWorker()
  const end = await engine.waitFor(id, { timeoutMs: 60_000 })
  expect(end).toMatchObject({ state: 'completed', result: CHILDREN })
  expect(await count(`from coppice.job where parent_id = '${id}'`)).toBe(CHILDREN)
  expect(await count(`from coppice.job_event where type = 'streamed' and kind = 'created'`)).toBe(CHILDREN)
  expect(await count(`from coppice.job_event where job_id = '${id}' and detail ? 'operationId'`)).toBe(1)
  expect(await findViolations(database.pool, { atRest: true })).toEqual([])
}, 150_000)
