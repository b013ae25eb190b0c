import type { Database } from '../../db/database.ts'
import type { JobTable } from '../../db/tables.ts'
import { transaction } from '../../db/transaction.ts'
import { lockJobs, lockTreeShared, treeBucket, tryLockTreesShared } from '../locks.ts'
import { isTerminal, type JobState } from '../states.ts'
import { applyMoves, type RowChange, wakeSettled } from './apply-moves.ts'
import { type HeldJob, type Move, moveOf, moveOfParent } from './outcome-move.ts'
import { type BatchResult, emptyResult, type SettleItem } from './settle-batch.ts'

/**
 * Settles attempts of jobs that have (or turned out to have) children, and tells stale attempts from others. Locks: the
 * trees, tried (waited for when `patient`, which takes a batch through whatever holds them), then own and parents' rows
 * together in the one order; then one update a row, a move and the decrement of its own children together.
 */
export async function settleInner(
  db: Database,
  items: readonly SettleItem[],
  actor: string,
  patient: boolean,
): Promise<BatchResult> {
  return transaction(db, async (tx) => {
    const result = emptyResult()
    let batch = [...items]
    if (patient) {
      for (const treeId of inBucketOrder(items)) await lockTreeShared(tx, treeId)
    } else {
      const locked = await tryLockTreesShared(
        tx,
        items.map((item) => item.job.treeId),
      )
      batch = items.filter((item) => locked.has(treeBucket(item.job.treeId)))
      result.deferred = items.filter((item) => !batch.includes(item))
    }
    if (batch.length === 0) return result
    const rows = await lockJobs(
      tx,
      batch.flatMap((item) => [item.job.id, item.job.parentId]),
    )
    const changes = new Map<string, RowChange>()
    // Deepest first: a child's end counts before its parent's own end is judged.
    for (const item of batch.sort((a, b) => b.job.depth - a.job.depth)) decide(item, rows, changes, result)
    const after = await applyMoves(tx, [...changes.values()], actor)
    const woken = await wakeSettled(tx, after, actor)
    return { ...result, ...woken }
  })
}

function decide(
  item: SettleItem,
  rows: Map<string, JobTable>,
  changes: Map<string, RowChange>,
  result: BatchResult,
): void {
  const row = rows.get(item.job.id)
  if (!row || row.claim_token !== item.job.claimToken || row.state !== 'running') {
    const mine = row !== undefined && row.claim_token === item.job.claimToken && wasSettledBefore(item, row)
    result[mine ? 'settled' : 'stale'].push(item)
    return
  }
  const own = changes.get(row.id)
  const held: HeldJob = {
    phase: row.phase,
    open_children: row.open_children - (own?.ended ?? 0),
    children_reopened: row.children_reopened,
    failing_child_id: row.failing_child_id ?? own?.failingChildId ?? null,
  }
  const move = moveOfParent(item, held)
  if (isTerminal(move.to) && held.open_children > 0 && row.orphan_policy === 'cancel') {
    result.other.push(item)
    return
  }
  changes.set(row.id, { ended: 0, failingChildId: null, ...own, id: row.id, move })
  result.settled.push(item)
  const parent = row.parent_id === null ? undefined : rows.get(row.parent_id)
  if (parent && isTerminal(move.to) && row.archived_at === null) settleEdge(parent, row, move, changes)
}

function settleEdge(parent: JobTable, child: JobTable, move: Move, changes: Map<string, RowChange>): void {
  const change = changes.get(parent.id) ?? { id: parent.id, ended: 0, failingChildId: null, move: null }
  const fails = move.to === 'failed' && child.on_child_failure === 'fail_parent'
  changes.set(parent.id, {
    ...change,
    ended: change.ended + 1,
    failingChildId: change.failingChildId ?? (fails ? child.id : null),
    anyFailed: change.anyFailed || (move.to === 'failed' && child.on_child_failure !== 'ignore'),
  })
}

/** Our own commit, whose answer was lost: own token, and the state that the outcome asks for. */
function wasSettledBefore(item: SettleItem, row: JobTable): boolean {
  const { to } = moveOf(item)
  const state = row.state as JobState
  return state === to || (to === 'queued' && state === 'paused')
}

/** One tree of each bucket, in the order of the buckets, as batches that try them take them too. */
function inBucketOrder(items: readonly SettleItem[]): string[] {
  const byBucket = new Map(items.map((item) => [treeBucket(item.job.treeId), item.job.treeId]))
  return [...byBucket.entries()].sort(([a], [b]) => a - b).map(([, treeId]) => treeId)
}
