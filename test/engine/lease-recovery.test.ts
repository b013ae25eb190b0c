import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { JobEventTable } from '../../src/db/tables.ts'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import { recoverLostJobs } from '../../src/engine/lease/recovery.ts'
import { captureLog } from '../support/captured-log.ts'
import { findViolations } from '../support/invariants.ts'
import { addWorker, createVerbs, type Verbs } from '../support/verbs.ts'

let v: Verbs
let log: ReturnType<typeof captureLog>
/** A worker that dies in each test. */
let mortal: string
beforeAll(async () => {
  v = await createVerbs()
})
beforeEach(async () => {
  log = captureLog()
  mortal = await addWorker(v.test)
})
afterEach(async () => {
  expect(await findViolations(v.test.pool)).toEqual([])
  await v.test.pool.query('truncate coppice.job, coppice.job_event, coppice.wake_receipt')
})
afterAll(() => v.close())

const recover = () => recoverLostJobs(v.db, { actor: 'reconciler', logger: log.logger })
const claimAs = (workerId: string, limit = 1000) =>
  claimJobs(v.db, { workerId, types: ['a', 'b', 'c', 'p'], queues: null, limit })
const die = () => v.test.pool.query('update coppice.worker set dead_at = now() where id = $1', [mortal])

async function lastEvent(id: string): Promise<JobEventTable> {
  const { rows } = await v.test.pool.query(
    'select * from coppice.job_event where job_id = $1 order by version desc limit 1',
    [id],
  )
  return rows[0]
}

describe('recovery of lost leases', () => {
  it('gives back what a dead worker held: a retry, LEASE_LOST, in the log word for word', async () => {
    const [id] = await v.enqueue({ type: 'a' })
    const [held] = await claimAs(mortal)
    expect(await recover()).toEqual({ retried: 0, failed: 0 })
    await die()
    expect(await recover()).toEqual({ retried: 1, failed: 0 })
    const row = await v.row(id!)
    expect(row).toMatchObject({ state: 'queued', phase: 'ingest', retry_count: 1, attempt: 1 })
    expect(row.run_at.getTime() - row.updated_at.getTime()).toBeLessThanOrEqual(1000)
    expect(await lastEvent(id!)).toMatchObject({
      from: 'running',
      to: 'queued',
      actor: 'reconciler',
      detail: {
        error: { code: 'LEASE_LOST', message: `Worker WK_${mortal} is gone: the lease on this job was lost.` },
      },
    })
    expect(log.messages()).toEqual([`꩜ Retry 1/2: a ingest | job:JB_${id}`])
    // The worker lives after all and wants to settle: refused.
    expect(await v.complete(held!)).toMatchObject({ settled: [], stale: [id] })
    expect(await recover()).toEqual({ retried: 0, failed: 0 })
  })

  it('counts a worker without a row as dead', async () => {
    const [id] = await v.enqueue({ type: 'a' })
    await claimAs(mortal)
    await v.test.pool.query('delete from coppice.worker where id = $1', [mortal])
    expect(await recover()).toEqual({ retried: 1, failed: 0 })
    expect((await v.row(id!)).state).toBe('queued')
  })

  it('leaves a live worker alone, however old its attempt and its timestamps are (case 38)', async () => {
    const [id] = await v.enqueue({ type: 'a' })
    await claimAs(mortal)
    await v.test.pool.query(`update coppice.job set claimed_at = now() - interval '1 hour', started_at = claimed_at`)
    await v.test.pool.query(`update coppice.worker set heartbeat_at = now() - interval '1 hour'`)
    expect(await recover()).toEqual({ retried: 0, failed: 0 })
    expect((await v.row(id!)).state).toBe('running')
  })

  it('fails a job whose retries are spent, and its parent wakes and sees it (case 2)', async () => {
    const [parent] = await v.enqueue({ type: 'p', children: [{ type: 'a', maxRetries: 0 }] })
    const [child] = await claimAs(mortal)
    await die()
    expect(await recover()).toEqual({ retried: 0, failed: 1 })
    expect(await v.row(child!.id)).toMatchObject({ state: 'failed', error_code: 'LEASE_LOST' })
    expect(await v.row(parent!)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1, open_children: 0 })
    expect(log.messages()).toEqual([`꩜ Max retries exceeded (0): a ingest | job:JB_${child!.id}`])
  })

  it("acts on the child's policy exactly as a thrown error does (case 2)", async () => {
    const [parent] = await v.enqueue({
      type: 'p',
      children: [
        { type: 'a', key: 'lost', maxRetries: 0, onChildFailure: 'fail_parent' },
        { type: 'p', key: 'sibling', children: [{ type: 'b' }] },
      ],
    })
    const held = await claimAs(mortal)
    await die()
    // Both leaves go back; the one without a retry takes the tree down.
    const given = await recover()
    expect(given.failed).toBe(1)
    expect(await v.row(parent!)).toMatchObject({ state: 'failed', error_code: 'CHILD_FAILED' })
    const other = held.find((job) => job.key !== 'lost')!
    expect(await v.row(other.id)).toMatchObject({ state: 'cancelled', cancel_reason: 'parent job completed' })
  })

  it('puts an aggregate back into AGGREGATE, over the same children', async () => {
    const [parent] = await v.enqueue({ type: 'p', children: [{ type: 'a' }] })
    await v.complete(...(await v.claim()))
    const [held] = await claimAs(mortal)
    expect(held).toMatchObject({ id: parent, phase: 'aggregate', wave: 1 })
    await die()
    expect(await recover()).toEqual({ retried: 1, failed: 0 })
    expect(await v.row(parent!)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1, retry_count: 1 })
  })

  it('gives back any number of jobs, page by page', async () => {
    const ids = await v.enqueue(...Array.from({ length: 1200 }, () => ({ type: 'a' })))
    while ((await claimAs(mortal, 500)).length > 0);
    await die()
    expect(await recover()).toEqual({ retried: ids.length, failed: 0 })
    const { rows } = await v.test.pool.query('select state, retry_count, count(*)::int from coppice.job group by 1, 2')
    expect(rows).toEqual([{ state: 'queued', retry_count: 1, count: ids.length }])
  })

  it('races the settles of the worker it thinks dead, and another recovery: each job ends its attempt once', async () => {
    for (let round = 0; round < 10; round++) {
      const parents = await v.enqueue(
        ...Array.from({ length: 5 }, () => ({
          type: 'p',
          children: Array(8).fill({ type: 'a', maxRetries: round % 3 }),
        })),
      )
      const worker = await addWorker(v.test)
      const held = await claimAs(worker)
      expect(held).toHaveLength(40)
      await v.test.pool.query('update coppice.worker set dead_at = now() where id = $1', [worker])
      const [first, second, ...settled] = await Promise.all([
        recover(),
        recover(),
        ...[0, 1, 2, 3].map((part) => v.complete(...held.filter((_, index) => index % 4 === part))),
      ])
      const { rows } = await v.test.pool.query(
        `select count(*) filter (where state = 'completed')::int as completed,
           count(*) filter (where state <> 'completed')::int as lost
         from coppice.job where parent_id = any($1)`,
        [parents],
      )
      expect(settled.flatMap((report) => report.settled)).toHaveLength(rows[0].completed)
      // A recovery that finds its own work done already reports it again: never less than was lost.
      expect(first.retried + first.failed + second.retried + second.failed).toBeGreaterThanOrEqual(rows[0].lost)
      const ends = await v.test.pool.query(
        `select job_id from coppice.job_event e join coppice.job j on j.id = e.job_id
         where j.parent_id = any($1) and e."from" = 'running' group by 1 having count(*) <> 1`,
        [parents],
      )
      expect(ends.rows).toEqual([])
      await v.test.pool.query('truncate coppice.job, coppice.job_event, coppice.wake_receipt')
    }
  })
})
