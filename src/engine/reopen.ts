import type { Database } from '../db/database.ts'
import { statement } from '../db/statement.ts'
import type { JobTable } from '../db/tables.ts'
import { type Tx, transaction } from '../db/transaction.ts'
import { lockSubtree, parentsOf, type VerbOptions } from './cascade.ts'
import type { Parents } from './child-edges.ts'
import { added } from './counter-sql.ts'
import { refuseCycle } from './descent.ts'
import { InvalidStateError, ParentGoneError, ValidationError } from './errors.ts'
import { insertEvents } from './event-sql.ts'
import { type CancelCode, type Job, jobFromRow } from './job.ts'
import { lockJobs } from './locks.ts'
import { gainMembers } from './membership.ts'
import { groupBy } from './reads/group-by.ts'
import { isTerminal, type JobState, stateList } from './states.ts'
import { wakeAtEdge } from './wake.ts'

/** How a job is run again. */
export interface RetryOptions extends VerbOptions {
  /** Reopen its descendants that failed, too, and those cancelled with a parent; their parents wait for them. */
  descendants?: boolean
  /** Run a COMPLETED job again. */
  rerun?: boolean
  /**
   * Its children that were cancelled with it: reopen them (the default), or leave all as they are. One that is open still,
   * such as a child that it KEEPs, is waited for all the same.
   */
  children?: 'reopen' | 'none'
}

/** What a retry came to. */
export interface Retried {
  job: Job
  reopenedDescendants: number
  /** Parents that were woken at once, because nothing below them was open. */
  woken: string[]
}

/** A job that was cancelled for what became of its parent, not for its own sake. */
const CANCELLED_WITH_PARENT: readonly CancelCode[] = [
  'parent_completed',
  'parent_failed',
  'parent_cancelled',
  'parent_deleted',
]

/**
 * Runs a failed or cancelled job again, in the phase it ended in. One that ended while it waited waits again: never
 * INGEST over children that are there. Its children that were cancelled with it are reopened, and with `descendants` also
 * those that failed, at every depth; a job with reopened children waits for them, and a new wave aggregates. With children
 * `none` it aggregates what there is, once nothing is open: a child that it KEEPs may be.
 *
 * @throws {NotFoundError}
 * @throws {InvalidStateError} it is active, archived, or completed without `rerun`
 * @throws {ParentGoneError} its parent has ended (and does not KEEP its children) or was deleted: retry that
 * @throws {ValidationError} options that contradict each other
 */
export async function retryJob(db: Database, id: string, options: RetryOptions): Promise<Retried> {
  const { actor, reason = 'retried', descendants = false, children = 'reopen' } = options
  return transaction(db, async (tx) => {
    const { row, parent } = await lockSubtree(tx, id)
    refuse(row, parent, options)
    const how = { actor, reason, descendants, children }
    const reopened = await reopenLocked(tx, [row], parentsOf(parent), how)
    const job = jobFromRow((await lockJobs(tx, [id])).get(id)!)
    return { job, ...reopened }
  })
}

/**
 * Opens terminal jobs again, of which none is above another, with what is cancelled (or failed) below them. Their rows and
 * their parents' are locked by this transaction.
 */
export async function reopenLocked(
  tx: Tx,
  rows: readonly JobTable[],
  parents: Parents,
  how: { actor: string; reason: string; descendants: boolean; children: 'reopen' | 'none' },
): Promise<{ reopenedDescendants: number; woken: string[] }> {
  const { actor, reason, descendants, children } = how
  const tops = rows.map((row): Reopening => ({ row, reopenedChildren: 0 }))
  const levels = children === 'none' ? [tops] : await reopenLevels(tx, tops, descendants)
  const below = levels.slice(1).flat()
  await reopenRows(tx, below, actor, 'reopened with its parent')
  await reopenRows(tx, levels[0]!, actor, reason)
  await countReopened(tx, rows, parents, actor)
  // Waiting parents below which nothing is open, such as one whose last children were deleted meanwhile.
  const candidates = levels.flat().map((node) => ({ id: node.row.id, assigneeId: node.row.assignee_id }))
  return { reopenedDescendants: below.length, woken: await wakeAtEdge(tx, candidates, actor) }
}

/**
 * Runs AGGREGATE of a failed parent again, whose row and parent's row this transaction has locked: it waits again, over
 * children that stay as they are, for the caller to wake it.
 *
 * @throws {ParentGoneError} its own parent has ended (and does not KEEP its children) or was deleted
 */
export async function reopenToWake(
  tx: Tx,
  row: JobTable,
  parent: JobTable | undefined,
  { actor, reason }: { actor: string; reason: string },
): Promise<void> {
  refuseWithoutParent(row, parent)
  await reopenRows(tx, [{ row, reopenedChildren: 0, waits: true }], actor, reason)
  await countReopened(tx, [row], parentsOf(parent), actor)
}

/** Their parents have so many open children more, as far as they are members. */
async function countReopened(tx: Tx, rows: readonly JobTable[], parents: Parents, actor: string): Promise<void> {
  const members = rows.filter((row) => row.archived_at === null)
  for (const [parentId, children] of groupBy(members, (row) => row.parent_id)) {
    const parent = parents.get(parentId ?? '')
    if (!parent) continue
    const failing = children.find((child) => child.id === parent.failing_child_id)
    const gain = { members: 0, opened: children.length, actor, reason: 'child reopened: wake withdrawn' }
    await gainMembers(tx, parent.id, failing ? { ...gain, reopenedId: failing.id } : gain)
  }
}

function refuse(row: JobTable, parent: JobTable | undefined, { rerun, descendants, children }: RetryOptions): void {
  const state = row.state as JobState
  if (row.archived_at !== null) throw new InvalidStateError(row.id, `${state} and archived`, 'retried')
  if (!isTerminal(state) || (state === 'completed' && !rerun)) throw new InvalidStateError(row.id, state, 'retried')
  if (children === 'none' && descendants) {
    throw ValidationError.of('children', 'cannot be none where descendants are to be reopened')
  }
  if (state === 'completed' && descendants) {
    throw ValidationError.of(
      'descendants',
      'a job that completed is rerun by itself: retry its failed descendants one by one',
    )
  }
  refuseWithoutParent(row, parent)
}

function refuseWithoutParent(row: JobTable, parent: JobTable | undefined): void {
  if (row.parent_id === null) return
  const child = `its child JB_${row.id} cannot be run again`
  if (!parent) throw new ParentGoneError(row.parent_id, 'deleted', child)
  // The orphan sweep would undo it at once.
  if (isTerminal(parent.state as JobState) && parent.orphan_policy !== 'keep') {
    throw new ParentGoneError(parent.id, parent.state, `${child} unless it is retried itself`)
  }
}

/** A terminal job that is opened again, and how many of its children are. */
interface Reopening {
  row: JobTable
  reopenedChildren: number
  /** It waits, also with no child reopened, and although it did not end while it waited. */
  waits?: boolean
}

/** A job that ended while it waited keeps the instant since when it did. */
export function endedWaiting(row: JobTable): boolean {
  return row.waiting_since !== null
}

/** The jobs to reopen, level by level from the top, each level read by a statement of its own under the tree's lock. */
async function reopenLevels(tx: Tx, tops: readonly Reopening[], descendants: boolean): Promise<Reopening[][]> {
  const levels: Reopening[][] = [[...tops]]
  const beginning = tops.map(({ row }) => row.id)
  for (let level = levels[0]!; level.length > 0; level = levels.at(-1)!) {
    // A job that ended in its ingest runs that again, and so spawns what it wants itself.
    const waits = level.filter(({ row }) => endedWaiting(row) || (descendants && row.phase === 'aggregate'))
    const parents = new Map(waits.map((node) => [node.row.id, node]))
    const rows = await tx.query(lockReopenable, [[...parents.keys()], CANCELLED_WITH_PARENT, descendants])
    refuseCycle(beginning, rows)
    for (const row of rows) parents.get(row.parent_id!)!.reopenedChildren++
    levels.push(rows.map((row) => ({ row, reopenedChildren: 0 })))
  }
  return levels
}

/**
 * Of children that a keyed spawn met: reopens those that were cancelled with their parent, and returns how many. Their
 * rows are locked by this transaction.
 */
export async function reopenCancelledChildren(tx: Tx, rows: readonly JobTable[], actor: string): Promise<number> {
  const cancelled = rows.filter(
    (row) =>
      row.state === 'cancelled' &&
      row.archived_at === null &&
      (CANCELLED_WITH_PARENT as readonly (string | null)[]).includes(row.cancel_code),
  )
  await reopenRows(
    tx,
    cancelled.map((row) => ({ row, reopenedChildren: 0 })),
    actor,
    'spawned again by its parent',
  )
  return cancelled.length
}

async function reopenRows(tx: Tx, nodes: readonly Reopening[], actor: string, reason: string): Promise<void> {
  if (nodes.length === 0) return
  await tx.query(reopen, [
    nodes.map((node) => node.row.id),
    nodes.map((node) => node.reopenedChildren),
    nodes.map((node) => node.waits || endedWaiting(node.row) || node.reopenedChildren > 0),
    actor,
    reason,
  ])
}

const lockReopenable = statement<JobTable>(
  'reopen.lock-children',
  (t) => `
  select * from ${t.job}
  where parent_id = any($1::uuid[]) and archived_at is null
    and ((state = 'cancelled' and cancel_code = any($2::text[])) or (state = 'failed' and $3))
  order by id for no key update`,
)

// The rows are locked already: their states are what they were when they were chosen.
const reopen = statement(
  'reopen',
  (t) => `
  with input as (
    select * from unnest($1::uuid[], $2::int[], $3::boolean[]) as i(id, reopened_children, waits)
  ),
  before as (select j.id, j.state from ${t.job} j join input using (id)),
  reopened as (
    update ${t.job} j
    set state = case when i.waits then 'waiting' else 'queued' end,
      open_children = ${added('j.open_children', 'i.reopened_children')},
      waiting_since = case when i.waits then now() end,
      retry_count = 0, run_at = now(), cancel_reason = null, cancel_code = null, finished_at = null,
      -- What the ingest of a type without an aggregate returned is its result once it has been woken.
      result = case when i.waits or j.phase = 'aggregate' then j.result end,
      failing_child_id = null, children_reopened = false, version = j.version + 1, updated_at = now()
    from input i join before b on b.id = i.id
    where j.id = i.id and j.state = b.state and j.state in (${stateList(['completed', 'failed', 'cancelled'])})
    returning j.*, b.state as was
  )
  ${insertEvents(t)}
  select 'moved', id, tree_id, parent_id, type, was, state, phase, wave, attempt, version, $4, $5, null
  from reopened`,
)
