import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { transaction } from '../../src/db/transaction.ts'
import { archiveJob } from '../../src/engine/archive.ts'
import { cancelJob, deleteJob } from '../../src/engine/cascade.ts'
import type { ClaimedJob } from '../../src/engine/claim/claimed-job.ts'
import type { Outcome } from '../../src/engine/job.ts'
import { recoverLostJobs } from '../../src/engine/lease/recovery.ts'
import { pauseJob } from '../../src/engine/pause.ts'
import { idsOf, useLimitedClaims } from '../support/limited-claims.ts'
import { until } from '../support/until.ts'
import { addWorker } from '../support/verbs.ts'

const logger = pino({ level: 'silent' })
const claims = useLimitedClaims()
const { claim } = claims

describe('a slot is free again in the very transaction that', () => {
  /** Two jobs of one key, the first of them held. */
  async function held(): Promise<[ClaimedJob, string]> {
    const [, second] = await claims.v.enqueue(
      { type: 'a', concurrencyKey: 'x', maxRetries: 0 },
      { type: 'a', concurrencyKey: 'x' },
    )
    const [first] = await claim()
    expect(await claim()).toHaveLength(0)
    return [first!, second!]
  }
  const error = { code: 'UNKNOWN', message: 'x' } as const
  const far = 3_600_000
  const outcomes: Record<string, Outcome> = {
    'completes the job': { kind: 'completed', result: null },
    'fails it at its last attempt': { kind: 'failed', error },
    'puts it back for a retry': { kind: 'retry', error, delayMs: far },
    'puts it back without one': { kind: 'requeue', delayMs: far, reason: 'snooze' },
  }
  it.each(Object.entries(outcomes))('%s', async (_what, outcome) => {
    const { v } = claims
    const [first, second] = await held()
    await v.end(first, outcome)
    expect(idsOf(await claim())).toEqual([second])
  })

  it('lets it wait for children', async () => {
    const { v } = claims
    const [first, second] = await held()
    await v.spawn(first, [{ type: 'c', runAt: new Date(Date.now() + far) }])
    expect(idsOf(await claim())).toEqual([second])
  })

  it('cancels it', async () => {
    const { v } = claims
    const [first, second] = await held()
    await cancelJob(v.db, first.id, { actor: 'test' })
    expect(idsOf(await claim())).toEqual([second])
  })

  it('deletes it', async () => {
    const { v } = claims
    const [first, second] = await held()
    await deleteJob(v.db, first.id, { actor: 'test' })
    expect(idsOf(await claim())).toEqual([second])
  })

  it('archives it', async () => {
    const { v } = claims
    const [first, second] = await held()
    await archiveJob(v.db, first.id, { actor: 'test' })
    expect(idsOf(await claim())).toEqual([second])
  })

  it('pauses it at the end of its attempt, and not before', async () => {
    const { v } = claims
    const [first, second] = await held()
    await pauseJob(v.db, first.id, { actor: 'test' })
    expect(await claim()).toHaveLength(0)
    await v.end(first, outcomes['puts it back for a retry']!)
    expect((await v.row(first.id)).state).toBe('paused')
    expect(idsOf(await claim())).toEqual([second])
  })

  it('recovers it from a dead worker', async () => {
    const { v } = claims
    const [, second] = await v.enqueue(
      { type: 'a', concurrencyKey: 'x', maxRetries: 0 },
      { type: 'a', concurrencyKey: 'x' },
    )
    const workerId = await addWorker(v.test)
    expect(await claim({ workerId })).toHaveLength(1)
    await v.db.pool.query(`update ${v.db.tables.worker} set dead_at = now() where id = $1`, [workerId])
    expect(await claim()).toHaveLength(0)
    expect(await recoverLostJobs(v.db, { actor: 'test', logger })).toEqual({ retried: 0, failed: 1 })
    expect(idsOf(await claim())).toEqual([second])
  })

  it('and not before that transaction is committed', async () => {
    const { v } = claims
    const [parent] = await v.enqueue({
      type: 'p',
      children: [
        { type: 'a', concurrencyKey: 'x' },
        { type: 'a', concurrencyKey: 'x' },
      ],
    })
    const [first] = await claim()
    // Its settle has written the job's row when it comes to the parent's, and waits for that.
    const { settling } = await transaction(v.db, async (tx) => {
      await tx.client.query(`select id from ${v.db.tables.job} where id = $1 for update`, [parent])
      const settling = v.complete(first!)
      await until(async () => {
        const { rows } = await v.test.pool.query(
          `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
             and query like '%coppice:settle.leaves%'`,
        )
        return rows.length
      })
      expect(await claim()).toHaveLength(0)
      return { settling }
    })
    await settling
    expect(await claim()).toHaveLength(1)
  })

  it('a retry counts anew', async () => {
    const { v } = claims
    const [, second] = await v.enqueue({ type: 'a', concurrencyKey: 'x' }, { type: 'a', concurrencyKey: 'x' })
    const [first] = await claim()
    await v.end(first!, { kind: 'retry', error, delayMs: 0 })
    // The other one is first by now; while it runs, the retry does not.
    const [now] = await claim()
    expect(now!.id).toBe(second)
    expect(await claim()).toHaveLength(0)
    await v.complete(now!)
    const [again] = await claim()
    expect([again!.id, again!.retryCount]).toEqual([first!.id, 1])
    expect(await claim()).toHaveLength(0)
  })
})
