import { isConnectionError } from '../../db/connection-errors.ts'
import type { Database } from '../../db/database.ts'
import { statement, unindexed } from '../../db/statement.ts'
import { transaction } from '../../db/transaction.ts'
import { childSets } from '../child-set.ts'
import { treeBucket } from '../locks.ts'
import { each } from '../maintenance/each.ts'
import { MAINTENANCE_ACTOR, type MaintenanceContext } from '../maintenance/handler.ts'
import { unborneSql } from '../settle/tolerance.ts'
import { type WakeOutcome, wakeParent, wakeParents } from '../wake.ts'
import { putRight } from './recount.ts'

/** Of one tick. */
export interface Tally {
  /** How many parents it may still wake. */
  budget: number
  /** Parents that it found to be due, and that are not delivered (yet). */
  stuck: number
}

/** Parents that one transaction wakes. */
const TOGETHER = 25

/**
 * Wakes parents that were found to be due, as far as the tick's budget goes, and returns the others. Their child set keys
 * are read first, in one statement; then each is woken under its lock, and only for that key. One whose key is another by
 * then is left to whoever changed it: superseded. One that does not wait any more was woken by somebody else:
 * deduplicated. Those whose locks are to be had at once are woken some together, the others each in a transaction of its
 * own, as are those of a transaction that failed: one that cannot be woken keeps no other from it.
 *
 * Those that do not bear a child's failure are failed instead. They are judged after the keys were read: what changes
 * later is another key.
 */
export async function wakeDue(context: MaintenanceContext, tally: Tally, due: readonly string[]): Promise<string[]> {
  const { db, metrics, signal } = context
  const ids = due.slice(0, tally.budget)
  tally.budget -= ids.length
  tally.stuck += due.length
  metrics.wakeCandidates.inc(ids.length)
  const sets = ids.length === 0 ? [] : await db.query(readKeys, [ids])
  const settled = new Set<string>()
  const settle = (id: string, wake: WakeOutcome | undefined) => {
    tell(context, wake)
    settled.add(id)
    tally.stuck -= 1
  }
  const unborne = ids.length === 0 ? [] : (await db.query(findUnborne, [ids])).map((row) => row.id)
  for (const id of unborne) settled.add(id)
  tally.stuck -= unborne.length
  const closed = sets.filter((set) => set.open === 0 && !settled.has(set.id))
  for (let at = 0; at < closed.length && !signal.aborted; at += TOGETHER) {
    for (const wake of await wakeTogether(db, closed.slice(at, at + TOGETHER))) settle(wake.id, wake)
  }
  const byId = new Map(sets.map((set) => [set.id, set]))
  const rest = ids.filter((id) => !settled.has(id))
  await each(rest, signal, async (id) => {
    const set = byId.get(id)
    if (set !== undefined && set.open > 0) {
      metrics.wakeSuperseded.inc()
      await putRight(context, [id])
      tally.stuck -= 1
    } else settle(id, set && (await wakeParent(db, id, { ...RECONCILER, expectedKey: set.childSetKey })))
  }).finally(() => putRight(context, unborne))
  return due.slice(ids.length)
}

const RECONCILER = { source: 'reconciler', actor: MAINTENANCE_ACTOR } as const

/** Counts what became of a candidate. */
function tell({ metrics, changed }: MaintenanceContext, wake: WakeOutcome | undefined): void {
  if (wake !== undefined && wake.drift !== 0) metrics.driftRepaired.inc()
  if (wake === undefined) metrics.wakeDeduplicated.inc()
  else if (wake.outcome === 'woken') changed()
  else if (wake.outcome === 'withheld') metrics.wakeAssigneeUnresolved.inc()
  else metrics.wakeSuperseded.inc()
}

/** Wakes those whose locks are to be had at once; none of them, if one cannot be woken. */
async function wakeTogether(db: Database, sets: readonly ReadChildSet[]): Promise<WakeOutcome[]> {
  const keys = new Map(sets.map((set) => [set.id, set.childSetKey]))
  const parameters = [db.lockSpace, sets.map((set) => treeBucket(set.treeId)), sets.map((set) => set.id)]
  return transaction(db, async (tx) => {
    const held = await tx.query(holdWaiting, parameters)
    const candidates = held.map(({ id, assigneeId }) => ({ id, assigneeId, expectedKey: keys.get(id)! }))
    return wakeParents(tx, candidates, RECONCILER)
  }).catch((error: unknown) => {
    if (isConnectionError(error)) throw error
    return []
  })
}

interface ReadChildSet {
  id: string
  treeId: string
  open: number
  childSetKey: string
}

const findUnborne = statement<{ id: string }>(
  'reconcile.find-unborne',
  (t) => `
  with ${unborneSql(t)}
  select id from unborne`,
)

const readKeys = statement<ReadChildSet>(
  'reconcile.read-keys',
  (t) => `
  with ${childSets(t)}
  select id, tree_id as "treeId", open, child_set_key as "childSetKey" from child_set`,
  { prepared: true },
)

// Tree locks and row locks are tried, never waited for: in whatever order, nobody is kept waiting by this one's waiting.
const holdWaiting = statement<{ id: string; assigneeId: string | null }>(
  'reconcile.hold-waiting',
  (t) => `
  with wanted as materialized (
    select w.* from unnest($2::int[], $3::uuid[]) as w(bucket, id)
    where pg_try_advisory_xact_lock_shared($1, w.bucket)
  )
  select w.id, row.assignee_id as "assigneeId" from wanted w
  cross join lateral (
    select j.assignee_id from ${t.job} j where j.id = w.id and ${unindexed(`j.state = 'waiting'`)}
    for no key update skip locked) row`,
)
