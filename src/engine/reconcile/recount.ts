import { statement } from '../../db/statement.ts'
import type { JobTable } from '../../db/tables.ts'
import { type Tx, transaction } from '../../db/transaction.ts'
import { findPlace, lockJobs, lockTreeShared } from '../locks.ts'
import { each } from '../maintenance/each.ts'
import { MAINTENANCE_ACTOR, type MaintenanceContext } from '../maintenance/handler.ts'
import { gainMembers } from '../membership.ts'
import { ACTIVE_SQL } from '../states.ts'

/** Puts the counters of jobs right by their children's rows, each in a transaction of its own, and counts the wrong ones. */
export async function putRight({ db, metrics, signal }: MaintenanceContext, ids: readonly string[]): Promise<void> {
  await each(ids, signal, async (id) => {
    const drift = await transaction(db, async (tx) => {
      const row = await lockForCount(tx, id)
      return row ? recountLocked(tx, row) : 0
    })
    if (drift !== 0) metrics.driftRepaired.inc()
  })
}

/** Locks: the tree shared, then the job's row. Undefined: it is gone. */
export async function lockForCount(tx: Tx, id: string): Promise<JobTable | undefined> {
  const [found] = await tx.query(findPlace, [id])
  if (!found) return undefined
  await lockTreeShared(tx, found.tree_id)
  return (await lockJobs(tx, [id])).get(id)
}

/**
 * Puts the counters of a job right, whose row this transaction has locked by an earlier statement. Children that are open
 * and were not counted are gained as if a verb had opened them: a wake that was given before and not yet claimed is
 * withdrawn. Returns by how much the counter of open children was too high.
 */
export async function recountLocked(tx: Tx, row: JobTable): Promise<number> {
  const [counted] = await tx.query(countMembers, [row.id])
  const { members, open } = counted!
  const drift = row.open_children - open
  if (drift < 0) {
    await gainMembers(tx, row.id, {
      members: 0,
      // A counter below nothing says of no child that it was opened.
      opened: Math.min(-drift, open),
      counted: { members, open },
      actor: MAINTENANCE_ACTOR,
      reason: 'child reopened or added by SQL: wake withdrawn',
    })
  } else if (drift > 0 || members !== row.child_count) await tx.query(setCounters, [row.id, members, open])
  return drift
}

const countMembers = statement<{ members: number; open: number }>(
  'reconcile.count-members',
  (t) => `
  select count(*)::int as members, (count(*) filter (where state in (${ACTIVE_SQL})))::int as open
  from ${t.job} where parent_id = $1 and archived_at is null`,
)

const setCounters = statement(
  'reconcile.set-counters',
  (t) => `update ${t.job} set child_count = $2, open_children = $3 where id = $1`,
)
