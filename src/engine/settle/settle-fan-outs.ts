import type { Database } from '../../db/database.ts'
import { statement, unindexed } from '../../db/statement.ts'
import { transaction } from '../../db/transaction.ts'
import { insertChildren } from '../enqueue.ts'
import type { Outcome } from '../job.ts'
import { treeBucket } from '../locks.ts'
import { startWaiting } from '../start-waiting.ts'
import { wakeSettled } from './apply-moves.ts'
import { type BatchResult, emptyResult, type SettleItem } from './settle-batch.ts'

/** Most children of a fan-out that may be settled together with others. */
const MAX_CHILDREN = 100

/** A phase that spawned few children, without keys and without children of their own. */
export interface SmallFanOut extends SettleItem {
  outcome: Extract<Outcome, { kind: 'waiting' }>
}

/** Whether an attempt's end is a fan-out so small and plain that many of them go into one transaction. */
export function isSmallFanOut(item: SettleItem): item is SmallFanOut {
  const { outcome } = item
  return (
    outcome.kind === 'waiting' &&
    outcome.children.length <= MAX_CHILDREN &&
    outcome.children.every((child) => child.key === null && child.children === null)
  )
}

/**
 * Ends phases that spawned few children: all their children and moves from RUNNING to WAITING in one transaction. Locks:
 * the trees, tried; then the jobs' own rows in the one order; both before the inserts, which are few. `other` are those
 * whose tree lock was not to be had or that are not held (any more): one by one, `endPhaseWaiting` finds out which.
 */
export async function settleFanOuts(db: Database, items: readonly SmallFanOut[], actor: string): Promise<BatchResult> {
  return transaction(db, async (tx) => {
    const sorted = items.toSorted((a, b) => b.job.depth - a.job.depth || (a.job.id < b.job.id ? -1 : 1))
    const rows = await tx.query(holdAll, [
      db.lockSpace,
      sorted.map(({ job }) => treeBucket(job.treeId)),
      sorted.map(({ job }) => job.id),
      sorted.map(({ job }) => job.claimToken),
    ])
    const held = new Set(rows.map((row) => row.id))
    const settled = sorted.filter(({ job }) => held.has(job.id))
    const result = { ...emptyResult(), settled, other: sorted.filter(({ job }) => !held.has(job.id)) }
    if (settled.length === 0) return result
    const families = settled.map(({ job, outcome }) => ({
      place: { ...job, spawnWave: job.wave + 1 },
      children: outcome.children,
    }))
    await insertChildren(tx, families, actor)
    const starts = settled.map(({ job, outcome }) => ({
      id: job.id,
      created: outcome.children.length,
      opened: outcome.children.length,
      spawnWave: job.wave + 1,
      result: outcome.result === undefined ? null : JSON.stringify(outcome.result),
    }))
    const ends = await wakeSettled(tx, await startWaiting(tx, starts, actor), actor)
    return { ...result, ...ends }
  })
}

// One by one through the primary key, in the order given, as the settling of leaves does and for the same reasons.
const holdAll = statement<{ id: string }>(
  'spawn.hold-all',
  (t) => `
  with wanted as materialized (
    select w.* from unnest($2::int[], $3::uuid[], $4::uuid[]) as w(bucket, id, claim_token)
    where pg_try_advisory_xact_lock_shared($1, w.bucket)
  )
  select w.id from wanted w
  cross join lateral (
    select from ${t.job} j where j.id = w.id and ${unindexed(`j.state = 'running'`)} and j.claim_token = w.claim_token
    for no key update) row`,
)
