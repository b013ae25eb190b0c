import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type { Worker } from 'node:worker_threads'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { WorkerTable } from '../../src/db/tables.ts'
import { type HeartbeatOptions, HeartbeatRefusedError, startHeartbeat } from '../../src/engine/lease/heartbeat.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { createWatchedHeartbeat, type WatchedHeartbeat } from '../support/heartbeat.ts'
import { until } from '../support/until.ts'
import { addWorker } from '../support/verbs.ts'

const INTERVAL = 300

let test: TestDatabase
const started: WatchedHeartbeat[] = []
beforeAll(async () => {
  test = await createTestDatabase()
})
afterEach(async () => {
  await Promise.all(started.splice(0).map((one) => one.heartbeat.stop({ removeRow: true })))
  await test.pool.query('delete from coppice.worker')
})
afterAll(() => test.drop())

async function start(worker: Partial<HeartbeatOptions['worker']> = {}): Promise<WatchedHeartbeat> {
  const one = await createWatchedHeartbeat(test, { intervalMs: INTERVAL, ...worker })
  started.push(one)
  return one
}

async function rowOf(id: string): Promise<WorkerTable | undefined> {
  return (await test.pool.query('select * from coppice.worker where id = $1', [id])).rows[0]
}

/** A worker's row that nobody beats for, but says it would. */
async function addSilentWorker(intervalMs: number): Promise<string> {
  const id = await addWorker(test)
  await test.pool.query('update coppice.worker set beat_interval = $2 where id = $1', [id, intervalMs])
  return id
}

/** A RUNNING job of a worker, as a claim leaves it. */
async function addRunningJob(workerId: string): Promise<{ jobId: string; claimToken: string }> {
  const jobId = randomUUID()
  const claimToken = randomUUID()
  await test.pool.query(
    `insert into coppice.job (id, tree_id, type, state, worker_id, claim_token, claimed_at)
     values ($1, $1, 'a', 'running', $2, $3, now())`,
    [jobId, workerId, claimToken],
  )
  return { jobId, claimToken }
}

describe('heartbeat', () => {
  it('registers the worker, beats at its interval and reports what it holds', async () => {
    const { id, reports } = await start({ host: 'here', queues: ['q'], types: ['a', 'b'], concurrency: 7 })
    expect(await rowOf(id)).toMatchObject({
      host: 'here',
      pid: process.pid,
      queues: ['q'],
      types: ['a', 'b'],
      concurrency: 7,
      beat_interval: INTERVAL,
      schema_version: 1,
      stopping: false,
      dead_at: null,
    })
    const held = await addRunningJob(id)
    const report = await until(() => reports.find((one) => one.held.length > 0))
    expect(report.held).toEqual([held])
    const versions = await test.pool.query('select max(version) from coppice.migration')
    expect(report.newestSchema).toBe(versions.rows[0].max)
    const many = await until(() => reports.length >= 12 && reports)
    // Never faster than its interval, and on average hardly slower.
    const span = many[11]!.askedAt - many[1]!.askedAt
    expect(span).toBeGreaterThanOrEqual(10 * INTERVAL - 20)
    expect(Number((await rowOf(id))!.beat)).toBeGreaterThanOrEqual(12)
    await test.pool.query('delete from coppice.job')
  })

  it('deletes its row when it stops with nothing held, and marks it dead when something is', async () => {
    const free = await start()
    const busy = await start()
    await addRunningJob(busy.id)
    await free.heartbeat.stop({ removeRow: true })
    await busy.heartbeat.stop({ removeRow: true })
    expect(await rowOf(free.id)).toBeUndefined()
    expect((await rowOf(busy.id))!.dead_at).toBeInstanceOf(Date)
    const resigned = await start()
    await resigned.heartbeat.stop({ removeRow: false })
    expect((await rowOf(resigned.id))!.dead_at).toBeInstanceOf(Date)
    const before = free.reports.length + busy.reports.length + resigned.reports.length
    await delay(3 * INTERVAL)
    expect(free.reports.length + busy.reports.length + resigned.reports.length).toBe(before)
    expect([free.lost, busy.lost, resigned.lost]).toEqual([0, 0, 0])
    await test.pool.query('delete from coppice.job')
  })

  it('says in its row that it is stopping, at once', async () => {
    const one = await start({ intervalMs: 60_000 })
    await until(() => one.reports.length === 1)
    await one.heartbeat.setStopping()
    expect((await rowOf(one.id))!.stopping).toBe(true)
    await one.heartbeat.setStopping()
    expect(one.reports.length).toBe(2)
  })

  it('declares a worker dead whose beat stands still, within about three of its intervals, and no other', async () => {
    const observer = await start()
    const other = await start()
    await until(() => observer.reports.length > 3 && other.reports.length > 3)
    const began = performance.now()
    const silent = await addSilentWorker(INTERVAL)
    const slow = await addSilentWorker(60_000)
    await until(async () => (await rowOf(silent))!.dead_at !== null, { interval: 5 })
    const took = performance.now() - began
    expect(took).toBeGreaterThanOrEqual(2 * INTERVAL)
    expect(took).toBeLessThan(5 * INTERVAL)
    await until(() => [observer, other].every((one) => one.reports.at(-1)!.deadWorkers.includes(silent)))
    expect((await rowOf(slow))!.dead_at).toBeNull()
    expect([observer.lost, other.lost]).toEqual([0, 0])
  })

  it('does not judge by timestamps', async () => {
    const observer = await start()
    const odd = await start()
    await until(() => observer.reports.length > 2)
    // A clock that jumped, both ways: the beat goes on, or has just begun to be watched.
    await test.pool.query(`update coppice.worker set heartbeat_at = now() - interval '1 day' where id = $1`, [odd.id])
    const silent = await addSilentWorker(60_000)
    await test.pool.query(`update coppice.worker set heartbeat_at = now() - interval '1 day' where id = $1`, [silent])
    const seen = observer.reports.length
    await until(() => observer.reports.length > seen + 8)
    expect((await rowOf(odd.id))!.dead_at).toBeNull()
    expect((await rowOf(silent))!.dead_at).toBeNull()
    // And a silent one is dead even with a timestamp of tomorrow.
    await test.pool.query(
      `update coppice.worker set heartbeat_at = now() + interval '1 day', beat_interval = $2 where id = $1`,
      [silent, INTERVAL],
    )
    await until(async () => (await rowOf(silent))!.dead_at !== null)
  })

  it('is lost when its row was declared dead, or is gone', async () => {
    const declared = await start()
    const deleted = await start()
    await test.pool.query('update coppice.worker set dead_at = now() where id = $1', [declared.id])
    await test.pool.query('delete from coppice.worker where id = $1', [deleted.id])
    await until(() => declared.lost === 1 && deleted.lost === 1)
    const before = declared.reports.length + deleted.reports.length
    await delay(3 * INTERVAL)
    expect(declared.reports.length + deleted.reports.length).toBe(before)
    expect([declared.lost, deleted.lost]).toEqual([1, 1])
    expect((await rowOf(declared.id))!.dead_at).toBeInstanceOf(Date)
    expect(await rowOf(deleted.id)).toBeUndefined()
    // Stopping what is over does nothing, and returns.
    await declared.heartbeat.stop({ removeRow: true })
    expect(await rowOf(declared.id)).toBeDefined()
  })

  it('goes on while the event loop is blocked for longer than the lease (case 58)', async () => {
    const blocked = await start()
    const observer = await start()
    await until(() => observer.reports.length > 2 && blocked.reports.length > 2)
    const before = Number((await rowOf(blocked.id))!.beat)
    const end = performance.now() + 8 * INTERVAL
    while (performance.now() < end);
    const row = (await rowOf(blocked.id))!
    expect(row.dead_at).toBeNull()
    expect(Number(row.beat)).toBeGreaterThanOrEqual(before + 6)
    const seen = blocked.reports.length
    await until(() => blocked.reports.length > seen + 2)
    expect([blocked.lost, observer.lost]).toEqual([0, 0])
  })

  it('reconnects when its connection is cut, before anyone declares it dead', async () => {
    // Long enough for a busy machine to reconnect in.
    const one = await start({ intervalMs: 1000 })
    const observer = await start({ intervalMs: 1000 })
    const cutPids = new Set<number>()
    for (let cut = 0; cut < 4; cut++) {
      const seen = [one, observer].map((each) => each.reports.length)
      await until(() => [one, observer].every((each, index) => each.reports.length > seen[index]!))
      const { rows } = await test.pool.query(
        `select pid, pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and application_name = 'coppice heartbeat'`,
      )
      for (const row of rows) cutPids.add(row.pid)
    }
    expect(cutPids.size).toBe(8)
    const seen = one.reports.length
    await until(() => one.reports.length > seen + 3)
    expect([one.lost, observer.lost]).toEqual([0, 0])
    expect((await rowOf(one.id))!.dead_at).toBeNull()
  })

  it('gives up a statement that does not answer, and beats again when it can', async () => {
    const one = await start()
    await until(() => one.reports.length > 1)
    const locker = await test.pool.connect()
    await locker.query('begin')
    await locker.query('select from coppice.worker where id = $1 for update', [one.id])
    await until(() => one.failures.length >= 2, { timeout: 15_000 })
    await locker.query('rollback')
    locker.release()
    const seen = one.reports.length
    await until(() => one.reports.length > seen + 2)
    expect(one.lost).toBe(0)
  })

  it('is lost when its thread dies', async () => {
    const threads: Worker[] = []
    const note = (thread: Worker) => void threads.push(thread)
    process.on('worker', note)
    const one = await start()
    process.off('worker', note)
    await until(() => one.reports.length > 1)
    await threads[0]!.terminate()
    await until(() => one.lost === 1)
    // Its row is left to be declared dead, as that of a process that died.
    expect((await rowOf(one.id))!.dead_at).toBeNull()
    await start()
    await until(async () => (await rowOf(one.id))!.dead_at !== null)
    await one.heartbeat.stop({ removeRow: true })
    expect(one.lost).toBe(1)
  })

  it('stops within seconds when the database does not answer', async () => {
    const one = await start()
    await until(() => one.reports.length > 0)
    const locker = await test.pool.connect()
    await locker.query('begin')
    await locker.query('select from coppice.worker where id = $1 for update', [one.id])
    const began = performance.now()
    await one.heartbeat.stop({ removeRow: true })
    expect(performance.now() - began).toBeLessThan(6000)
    await locker.query('rollback')
    locker.release()
  })

  it('waits for a database that is away, until it is told not to', async () => {
    const controller = new AbortController()
    const failures: Error[] = []
    const starting = startHeartbeat(
      {
        connectionString: 'postgres://nobody@127.0.0.1:1/nowhere',
        schema: 'coppice',
        signal: controller.signal,
        worker: { ...(await start()).identity, id: randomUUID() },
      },
      { beat() {}, lost() {}, failing: (error) => failures.push(error) },
    )
    starting.catch(() => {})
    await until(() => failures.length > 2)
    expect(failures[0]).toMatchObject({ code: 'ECONNREFUSED' })
    controller.abort(new Error('enough'))
    await expect(starting).rejects.toThrow('enough')
  })

  it('says so when it cannot register at all', async () => {
    const { identity } = await start()
    const options = { connectionString: test.connectionString, schema: 'nowhere', worker: identity }
    const on = { beat() {}, lost() {}, failing() {} }
    await expect(startHeartbeat(options, on)).rejects.toThrow(HeartbeatRefusedError)
  })
})
