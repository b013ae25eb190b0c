import type { Database } from '../db/database.ts'
import { statement } from '../db/statement.ts'
import type { JobTable } from '../db/tables.ts'
import { type Tx, transaction } from '../db/transaction.ts'
import { cancelDescendants, cancelRows } from './descendants.ts'
import { engineDeletes } from './engine-writes.ts'
import { InvalidStateError, NotFoundError } from './errors.ts'
import { insertEvents } from './event-sql.ts'
import { type AttemptError, type CancelCode, type Job, jobFromRow, type Outcome } from './job.ts'
import { findPlace, lockJobs, lockTreeExclusive } from './locks.ts'
import { applyMoves, wakeSettled } from './settle/apply-moves.ts'
import { childFailed, moveOfParent } from './settle/outcome-move.ts'
import type { SettleJob } from './settle/settle-batch.ts'
import { isTerminal, type JobState } from './states.ts'

/*
 * Verbs on a subtree. Each is one transaction under the tree's exclusive lock, so that no spawn, settle or wake of the
 * tree is under way: nobody escapes at any depth. Descendants are read level by level, one fresh statement each, through
 * terminal and archived rows too.
 */

/** Who does it and why, for the audit trail. */
export interface VerbOptions {
  actor: string
  reason?: string
}

/** What became of other jobs when one ended. */
export interface EndReport {
  /** Parents that were woken. */
  woken: string[]
  /** Parents that are to fail in their turn. */
  failing: string[]
}

/** Why descendants are cancelled, word for word, by what became of their parent. */
export const ORPHANED: Record<
  'completed' | 'failed' | 'cancelled' | 'deleted' | 'archived',
  { reason: string; code: CancelCode }
> = {
  completed: { reason: 'parent job completed', code: 'parent_completed' },
  failed: { reason: 'parent job completed', code: 'parent_failed' },
  cancelled: { reason: 'parent job cancelled', code: 'parent_cancelled' },
  archived: { reason: 'parent job cancelled', code: 'parent_cancelled' },
  deleted: { reason: 'parent job deleted', code: 'parent_deleted' },
}

/**
 * Deletes a job: cancels its active descendants at every depth, whatever its orphan policy, and settles its edge.
 * Terminal descendants stay, for audit.
 *
 * @throws {NotFoundError}
 */
export async function deleteJob(
  db: Database,
  id: string,
  { actor, reason }: VerbOptions,
): Promise<{ job: Job; cancelledDescendants: number } & EndReport> {
  return transaction(db, async (tx) => {
    const { row, parent } = await lockSubtree(tx, id)
    const cancelledDescendants = await cancelDescendants(tx, [id], ORPHANED.deleted, actor)
    await engineDeletes(tx)
    await tx.query(deleteRow, [id, actor, reason ?? null])
    const ends = parent ? await leaveChildSet(tx, row, parent, actor) : NOTHING
    return { job: jobFromRow(row), cancelledDescendants, ...ends }
  })
}

/**
 * Cancels a job and, unless its orphan policy is KEEP, its active descendants.
 *
 * @throws {NotFoundError}
 * @throws {InvalidStateError} it is terminal
 */
export async function cancelJob(
  db: Database,
  id: string,
  { actor, reason }: VerbOptions,
): Promise<{ job: Job; cancelledDescendants: number } & EndReport> {
  return transaction(db, async (tx) => {
    const { row, parent } = await lockSubtree(tx, id)
    if (isTerminal(row.state as JobState)) throw new InvalidStateError(id, row.state, 'cancelled')
    return cancelLocked(tx, row, parent, { reason: reason ?? 'cancelled on request', code: 'requested' }, actor)
  })
}

/** Cancels a job whose subtree this transaction has locked; also the first half of archiving an active job. */
export async function cancelLocked(
  tx: Tx,
  row: JobTable,
  parent: JobTable | undefined,
  why: { reason: string; code: CancelCode },
  actor: string,
): Promise<{ job: Job; cancelledDescendants: number } & EndReport> {
  const keep = row.orphan_policy === 'keep' && why.code !== 'archived'
  const cancelledDescendants = keep ? 0 : await cancelDescendants(tx, [row.id], ORPHANED.cancelled, actor)
  await cancelRows(tx, [row.id], why, actor, keep)
  const ends = parent ? await settleEdge(tx, row, parent, null, actor) : NOTHING
  const job = jobFromRow((await lockJobs(tx, [row.id])).get(row.id)!)
  return { job, cancelledDescendants, ...ends }
}

/**
 * Ends an attempt of a job that has open children, which are cancelled with it (or go on, by its orphan policy).
 * Null: the attempt no longer holds the job.
 */
export async function endJob(
  db: Database,
  job: SettleJob,
  outcome: Outcome,
  { actor }: VerbOptions,
): Promise<EndReport | null> {
  return transaction(db, async (tx) => {
    const locked = await lockSubtree(tx, job.id).catch((error: unknown) => {
      if (error instanceof NotFoundError) return null
      throw error
    })
    if (!locked) return null
    const { row, parent } = locked
    if (row.state !== 'running' || row.claim_token !== job.claimToken) return null
    const move = moveOfParent({ job, outcome }, row)
    const ends = isTerminal(move.to)
    const sweep = ends && row.orphan_policy === 'cancel'
    if (sweep) await cancelDescendants(tx, [job.id], ORPHANED[move.to as 'completed' | 'failed'], actor)
    const ended = sweep ? row.open_children : 0
    const [after] = await applyMoves(tx, [{ id: job.id, move, ended, failingChildId: null }], actor)
    if (!after) return null
    if (ends && parent) return settleEdge(tx, row, parent, move.to === 'failed' ? job.id : null, actor)
    return wakeSettled(tx, [after], actor)
  })
}

/**
 * Fails a job that no attempt holds: fail-fast, or a wait that took too long. Its descendants are cancelled, by its
 * orphan policy. Null: it is in none of the states `from` (any more), or there is no reason for it any more.
 *
 * @param options.why the error, by the row as it is under its lock; null: it is not to fail. What was read before the
 *   lock may be over by now.
 */
export async function failJob(
  db: Database,
  id: string,
  options: VerbOptions & { why: (row: JobTable) => AttemptError | null; from: readonly JobState[] },
): Promise<EndReport | null> {
  return transaction(db, async (tx) => {
    const { row, parent } = await lockSubtree(tx, id)
    const error = options.from.includes(row.state as JobState) ? options.why(row) : null
    if (error === null) return null
    const keep = row.orphan_policy === 'keep'
    if (!keep) await cancelDescendants(tx, [id], ORPHANED.failed, options.actor)
    await tx.query(failRow, [id, options.actor, error.message, error.code, error.stack ?? null, keep])
    return parent ? settleEdge(tx, row, parent, id, options.actor) : NOTHING
  }).catch((error: unknown) => {
    if (error instanceof NotFoundError) return null
    throw error
  })
}

/**
 * Fails parents that a child's failure marked (`failing_child_id`), and their parents in turn, each in a transaction of
 * its own. Those that run are left to the end of their attempt.
 */
export async function failFailingParents(
  db: Database,
  ids: readonly string[],
  { actor }: VerbOptions,
): Promise<{ failed: string[]; woken: string[] }> {
  const todo = [...ids]
  const report = { failed: [] as string[], woken: [] as string[] }
  for (let id = todo.shift(); id !== undefined; id = todo.shift()) {
    const [marked] = await db.query(readFailingChild, [id])
    if (!marked?.failing_child_id) continue
    const from: JobState[] = ['queued', 'waiting', 'paused']
    // The child may have been retried since: then the mark is gone.
    const why = ({ failing_child_id }: JobTable) => (failing_child_id === null ? null : childFailed(failing_child_id))
    const ends = await failJob(db, id, { actor, why, from })
    if (!ends) continue
    report.failed.push(id)
    report.woken.push(...ends.woken)
    todo.push(...ends.failing)
  }
  return report
}

const NOTHING: EndReport = { woken: [], failing: [] }

/** Locks: the tree exclusively, then the job's and its parent's rows in the one order. */
export async function lockSubtree(tx: Tx, id: string): Promise<{ row: JobTable; parent: JobTable | undefined }> {
  const [found] = await tx.query(findPlace, [id])
  if (!found) throw new NotFoundError(id)
  await lockTreeExclusive(tx, found.tree_id)
  const rows = await lockJobs(tx, [id, found.parent_id])
  const row = rows.get(id)
  if (!row) throw new NotFoundError(id)
  return { row, parent: found.parent_id === null ? undefined : rows.get(found.parent_id) }
}

/** A child that became terminal: its parent has one open child less. `row` is the child as it was before. */
async function settleEdge(
  tx: Tx,
  row: JobTable,
  parent: JobTable,
  failedId: string | null,
  actor: string,
): Promise<EndReport> {
  if (row.archived_at !== null) return NOTHING
  const failingChildId = failedId !== null && row.on_child_failure === 'fail_parent' ? failedId : null
  const anyFailed = failedId !== null && row.on_child_failure !== 'ignore'
  const after = await applyMoves(tx, [{ id: parent.id, move: null, ended: 1, failingChildId, anyFailed }], actor)
  return wakeSettled(tx, after, actor)
}

/** A child that left its parent's child set for good: deleted or archived. `row` is the child as it was before. */
export async function leaveChildSet(tx: Tx, row: JobTable, parent: JobTable, actor: string): Promise<EndReport> {
  if (row.archived_at !== null) return NOTHING
  await tx.query(uncountChild, [parent.id])
  const ended = isTerminal(row.state as JobState) ? 0 : 1
  const after = await applyMoves(tx, [{ id: parent.id, move: null, ended, failingChildId: null }], actor)
  return wakeSettled(tx, after, actor)
}

const readFailingChild = statement<{ failing_child_id: string | null }>(
  'cascade.read-failing-child',
  (t) => `select failing_child_id from ${t.job} where id = $1`,
)

const uncountChild = statement(
  'cascade.uncount-child',
  (t) => `update ${t.job} set child_count = child_count - 1 where id = $1`,
)

const failRow = statement(
  'cascade.fail',
  (t) => `
  with before as (select id, state from ${t.job} where id = $1),
  failed as (
    update ${t.job} j
    set state = 'failed', error = $3, error_code = $4, error_stack = $5,
      open_children = case when $6 then j.open_children else 0 end,
      completion_epoch = j.completion_epoch + 1, finished_at = now(), paused_from = null,
      -- Kept by a job that ends while it waits: a retry lets it wait again.
      waiting_since = case when 'waiting' in (j.state, j.paused_from) then j.waiting_since end,
      pause_requested = false, version = j.version + 1, updated_at = now()
    from before b where j.id = b.id
    returning j.*, b.state as was
  )
  ${insertEvents(t)}
  select 'moved', id, tree_id, parent_id, type, was, state, phase, wave, attempt, version, $2, $3,
    jsonb_build_object('error', jsonb_build_object('message', $3::text, 'code', $4::text, 'stack', $5::text))
  from failed`,
)

const deleteRow = statement(
  'cascade.delete',
  (t) => `
  with gone as (delete from ${t.job} where id = $1 returning *)
  ${insertEvents(t)}
  select 'deleted', id, tree_id, parent_id, type, state, null, phase, wave, attempt, version + 1, $2, $3, null
  from gone`,
)
