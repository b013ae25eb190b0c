import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { JobTable } from '../../src/db/tables.ts'
import { createEngine, type Engine } from '../../src/index.ts'
import { captureLog } from '../support/captured-log.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { findViolations } from '../support/invariants.ts'
import { type LeaseWorker, startLeaseWorker } from '../support/lease-worker.ts'
import { until } from '../support/until.ts'

/** The workers' heartbeat, in ms. */
const HEARTBEAT = 300

let test: TestDatabase
/** Enqueues only. */
let engine: Engine
const workers: LeaseWorker[] = []
beforeAll(async () => {
  test = await createTestDatabase()
})
beforeEach(() => {
  engine = createEngine({ connectionString: test.connectionString, logger: captureLog().logger })
})
afterEach(async () => {
  await engine.stop()
  await Promise.all(workers.splice(0).map((worker) => worker.killHard()))
  expect(await findViolations(test.pool)).toEqual([])
  await test.pool.query('truncate coppice.job, coppice.job_event, coppice.wake_receipt, coppice.worker')
})
afterAll(() => test.drop())

async function start(name: string): Promise<LeaseWorker> {
  const worker = await startLeaseWorker(test.connectionString, name)
  workers.push(worker)
  return worker
}

async function jobs(): Promise<JobTable[]> {
  return (await test.pool.query('select * from coppice.job order by depth, id')).rows
}

async function lostLeases(): Promise<{ job_id: string; at: Date; to: string }[]> {
  const { rows } = await test.pool.query(
    `select job_id, at, "to" from coppice.job_event where detail -> 'error' ->> 'code' = 'LEASE_LOST' order by id`,
  )
  return rows
}

async function workerRows(worker: LeaseWorker): Promise<{ id: string; dead_at: Date | null }[]> {
  const { rows } = await test.pool.query('select id, dead_at from coppice.worker where pid = $1', [worker.process.pid])
  return rows
}

const task = (payload: object, more: object = {}) => ({ type: 'task', payload, ...more })

describe('a worker that is killed', () => {
  it('gets its jobs run elsewhere within about two heartbeats and a backoff, each with one retry counted', async () => {
    const doomed = await start('doomed')
    const list = Array.from({ length: 20 }, () => task({ hang: 'doomed', ms: 600_000 }))
    const handles = await engine.enqueueMany(list)
    await until(() => doomed.started.length === 20)
    const other = await start('other')
    const { rows } = await test.pool.query('select clock_timestamp() as now')
    await doomed.killHard()
    const ends = await Promise.all(handles.map((handle) => engine.waitFor(handle, { timeoutMs: 30_000 })))
    for (const end of ends) expect(end).toMatchObject({ state: 'completed', result: { by: 'other' } })
    for (const job of await jobs()) expect(job).toMatchObject({ retry_count: 1, attempt: 2 })
    const lost = await lostLeases()
    expect(lost).toHaveLength(20)
    const took = lost.at(-1)!.at.getTime() - rows[0].now.getTime()
    expect(took).toBeGreaterThan(HEARTBEAT)
    expect(took).toBeLessThan(10 * HEARTBEAT)
    expect(other.log.filter((text) => text.startsWith('꩜ Retry 1/2: task ingest | job:JB_'))).toHaveLength(20)
    await until(async () => (await workerRows(doomed)).length === 0, { what: 'the dead row to be deleted' })
  })

  it('and whose retries are spent fails its job, and the parent aggregates that (case 2)', async () => {
    const doomed = await start('doomed')
    const root = await engine.enqueue({
      type: 'collect',
      children: [task({ hang: 'doomed', ms: 600_000 }, { maxRetries: 0 }), task({})],
    })
    await until(() => doomed.started.length === 2)
    await until(async () => (await jobs()).some((job) => job.state === 'completed'))
    const other = await start('other')
    await doomed.killHard()
    const end = await engine.waitFor(root.id, { timeoutMs: 30_000 })
    expect(end).toMatchObject({ state: 'completed' })
    const rows = await jobs()
    const children = expect.arrayContaining(['completed', 'failed LEASE_LOST'])
    expect(rows[0]).toMatchObject({ wave: 1, result: { by: 'other', children } })
    expect((await lostLeases()).map((event) => event.to)).toEqual(['failed'])
    expect(other.log).toContain(`꩜ Max retries exceeded (0): task ingest | job:JB_${(await lostLeases())[0]!.job_id}`)
  })

  it('and started again under the same host and name has none of its old leases (case 40)', async () => {
    const first = await start('worker')
    const handle = await engine.enqueue(task({ hang: 'worker', ms: 2000 }))
    await until(() => first.started.length === 1)
    await first.killHard()
    // Alone: nobody else is there to declare the first one dead.
    const second = await start('worker')
    expect(await engine.waitFor(handle, { timeoutMs: 30_000 })).toMatchObject({ state: 'completed' })
    expect(second.started).toEqual([`JB_${handle.id}`])
    expect(await jobs()).toMatchObject([{ attempt: 2, retry_count: 1 }])
    expect(await lostLeases()).toHaveLength(1)
  })
})

describe('a worker that is frozen past its lease', () => {
  it('is refused when it thaws: one result; and works on under a new identity (case 39)', async () => {
    const sleeper = await start('sleeper')
    // The handlers' time is up while they are frozen: thawed, they end at once.
    const list = Array.from({ length: 6 }, () => task({ hang: 'sleeper', ms: 1500 }))
    const handles = await engine.enqueueMany(list)
    await until(() => sleeper.started.length === 6)
    sleeper.signal('SIGSTOP')
    const [before] = await workerRows(sleeper)
    const held = (await jobs()).filter((job) => job.state === 'running')
    const other = await start('other')
    const ends = await Promise.all(handles.map((handle) => engine.waitFor(handle, { timeoutMs: 30_000 })))
    for (const end of ends) expect(end).toMatchObject({ state: 'completed', result: { by: 'other' } })
    const settled = await jobs()
    sleeper.signal('SIGCONT')
    const after = await until(async () => (await workerRows(sleeper)).find((row) => row.id !== before!.id))
    expect(after.dead_at).toBeNull()
    await until(() => sleeper.log.some((text) => text.includes(`WK_${before!.id} was declared dead`)))
    expect(held).toHaveLength(6)
    // What it came to was refused or dropped: not a column changed.
    expect(await jobs()).toEqual(settled)
    expect((await lostLeases()).map((event) => event.job_id).sort()).toEqual(held.map((job) => job.id).sort())
    await other.killHard()
    const next = await engine.enqueue(task({}))
    expect(await engine.waitFor(next, { timeoutMs: 30_000 })).toMatchObject({ result: { by: 'sleeper' } })
    const { rows } = await test.pool.query('select attempt, worker_id from coppice.job where id = $1', [next.id])
    expect(rows).toEqual([{ attempt: 1, worker_id: after.id }])
  })

  it('and everybody with it, as on a suspended host: nobody is declared dead for having slept', async () => {
    const all = [await start('one'), await start('two'), await start('three')]
    const handle = await engine.enqueue(task({ hang: 'none' }))
    await engine.waitFor(handle, { timeoutMs: 30_000 })
    const before = (await Promise.all(all.map(workerRows))).flat()
    for (const worker of all) worker.signal('SIGSTOP')
    const until_ = performance.now() + 10 * HEARTBEAT
    await until(() => performance.now() > until_)
    for (const worker of all) worker.signal('SIGCONT')
    const beats = async () =>
      (await test.pool.query('select beat from coppice.worker order by id')).rows.map((row) => Number(row.beat))
    const then = await beats()
    await until(async () => (await beats()).every((beat, index) => beat >= then[index]! + 6))
    expect((await Promise.all(all.map(workerRows))).flat()).toEqual(before)
  })
})

describe('a worker whose handler blocks the event loop for longer than the lease', () => {
  it('is not declared dead, and its job not taken away (case 58)', async () => {
    const blocked = await start('blocked')
    const handle = await engine.enqueue(task({ block: 'blocked', ms: 10 * HEARTBEAT }))
    await until(() => blocked.started.length === 1)
    const other = await start('other')
    expect(await engine.waitFor(handle, { timeoutMs: 30_000 })).toMatchObject({
      state: 'completed',
      result: { by: 'blocked' },
    })
    expect(await jobs()).toMatchObject([{ attempt: 1, retry_count: 0 }])
    expect(await workerRows(blocked)).toMatchObject([{ dead_at: null }])
    expect(other.started).toEqual([])
    expect(await lostLeases()).toEqual([])
  })
})
