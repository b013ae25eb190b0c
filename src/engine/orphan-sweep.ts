import type { Database } from '../db/database.ts'
import { statement } from '../db/statement.ts'
import { transaction } from '../db/transaction.ts'
import { ORPHANED } from './cascade.ts'
import { cancelSubtrees } from './descendants.ts'
import { lockJobs, lockTreeExclusive } from './locks.ts'
import { lookForOrphans, OPEN_CHILD, type OrphanPlace } from './orphans.ts'
import { isTerminal, type JobState, TERMINAL_SQL, type TerminalState } from './states.ts'

/** A parent that has left active children behind, or seems to have. */
export interface OrphanFamily {
  parentId: string
  treeId: string
}

/** What a full round of the sweep came to. */
export interface SweepReport {
  /** Parents whose children were cancelled. */
  parents: number
  /** Jobs that were cancelled: their children, with their descendants. */
  cancelled: number
}

/** Parents and orphans of one statement of a full round. */
const PAGE = 1000

/** Cancels all orphans that there are now, in one full round. */
export async function sweepOrphans(db: Database, { actor }: { actor: string }): Promise<SweepReport> {
  const report: SweepReport = { parents: 0, cancelled: 0 }
  let from: OrphanPlace | null = null
  do {
    const slice = await lookForOrphans(db, { from, to: null, backwards: false, size: PAGE, parents: PAGE })
    for (const family of familiesOf(slice.orphans)) {
      const cancelled = await cancelOrphans(db, family, actor)
      report.parents += cancelled > 0 ? 1 : 0
      report.cancelled += cancelled
    }
    from = slice.next
  } while (from !== null)
  return report
}

/** The parents of these orphans, each once. */
export function familiesOf(orphans: readonly OrphanFamily[]): OrphanFamily[] {
  return [...new Map(orphans.map(({ parentId, treeId }) => [parentId, { parentId, treeId }])).values()]
}

/**
 * Cancels the active children of a parent that is gone, or has ended without keeping them, with everything below, as the
 * end of the parent would have done; returns how many jobs that were. It proves again under the locks that they are
 * orphans: the tree exclusively, the parent's row, then theirs.
 */
export async function cancelOrphans(db: Database, { parentId, treeId }: OrphanFamily, actor: string): Promise<number> {
  return transaction(db, async (tx) => {
    await lockTreeExclusive(tx, treeId)
    const parent = (await lockJobs(tx, [parentId])).get(parentId)
    if (parent && (!isTerminal(parent.state as JobState) || parent.orphan_policy === 'keep')) return 0
    const children = await tx.query(lockOpenChildren, [parentId])
    const why = ORPHANED[parent ? (parent.state as TerminalState) : 'deleted']
    const ids = children.map((child) => child.id)
    const cancelled = await cancelSubtrees(tx, ids, why, actor)
    if (parent && parent.open_children !== 0) await tx.query(closeParent, [parentId])
    return cancelled
  })
}

/** Parents that have ended and count open children all the same, by the partial index job_orphaning. */
export async function endedParents(db: Database, limit: number): Promise<OrphanFamily[]> {
  const rows = await db.query(findEndedParents, [limit])
  return rows.map((row) => ({ parentId: row.id, treeId: row.tree_id }))
}

const findEndedParents = statement<{ id: string; tree_id: string }>(
  'orphans.ended-parents',
  (t) => `
  select id, tree_id from ${t.job}
  where state in (${TERMINAL_SQL}) and orphan_policy = 'cancel' and open_children > 0
  order by id limit $1`,
)

const lockOpenChildren = statement<{ id: string }>(
  'orphans.lock-children',
  (t) => `select id from ${t.job} where parent_id = $1 and ${OPEN_CHILD} order by id for no key update`,
)

const closeParent = statement('orphans.close-parent', (t) => `update ${t.job} set open_children = 0 where id = $1`)
