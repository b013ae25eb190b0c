import type { TableNames } from '../../db/statement.ts'
import type { JobTable } from '../../db/tables.ts'
import type { Tx } from '../../db/transaction.ts'
import { archiveRows } from '../archive.ts'
import { deleteRows, ORPHANED, type VerbOptions } from '../cascade.ts'
import { type EndReport, leaveChildSets, NOTHING, type Parents, settleEdges } from '../child-edges.ts'
import { cancelDescendants, cancelRows } from '../descendants.ts'
import { reopenLocked } from '../reopen.ts'
import { ACTIVE_STATES, isTerminal, JOB_STATES, type JobState, TERMINAL_SQL } from '../states.ts'

/** What a verb did to some jobs. */
export interface Acted extends EndReport {
  /** Jobs that were cancelled: of those that the verb was for, and below them. */
  cancelled: number
}

/** A verb on one job, done to many at once. */
export interface BulkVerb {
  /** In which states it may be done. */
  states: readonly JobState[]
  /** What else must hold of job `j`. */
  allowed(t: TableNames): string
  /** Whether it cancels the active descendants of a job. */
  cancelsBelow(row: Pick<JobTable, 'state' | 'orphan_policy'>): boolean
  /** Whether a job has got what the verb does, by what was done to another one above it. */
  isDone(row: JobTable): boolean
  /**
   * Does it to jobs of which none is above another. Their rows and their parents' are locked by this transaction; so is the
   * tree, exclusively, unless none of them has a child.
   */
  act(tx: Tx, rows: readonly JobTable[], parents: Parents, options: VerbOptions): Promise<Acted>
}

/** cancelJob for many. */
export const CANCEL: BulkVerb = {
  states: ACTIVE_STATES,
  allowed: () => 'true',
  cancelsBelow: keepsNothing,
  isDone: isEnded,
  async act(tx, rows, parents, { actor, reason }) {
    const why = { reason: reason ?? 'cancelled on request', code: 'requested' } as const
    const [sweeping, keeping] = [rows.filter(keepsNothing), rows.filter((row) => !keepsNothing(row))]
    const below = await cancelDescendants(tx, idsOf(sweeping), ORPHANED.cancelled, actor)
    const ended =
      (await cancelRows(tx, idsOf(sweeping), why, actor, false)) +
      (await cancelRows(tx, idsOf(keeping), why, actor, true))
    return { cancelled: below + ended, ...(await settleEdges(tx, rows, parents, actor)) }
  },
}

/** archiveJob for many. */
export const ARCHIVE: BulkVerb = {
  states: JOB_STATES,
  allowed: () => 'j.archived_at is null',
  cancelsBelow: (row) => !isEnded(row),
  isDone: (row) => row.archived_at !== null,
  async act(tx, rows, parents, options) {
    const active = idsOf(rows.filter((row) => !isEnded(row)))
    const below = await cancelDescendants(tx, active, ORPHANED.archived, options.actor)
    const why = { reason: options.reason ?? 'archived', code: 'archived' } as const
    const ended = await cancelRows(tx, active, why, options.actor, false)
    await archiveRows(tx, idsOf(rows), options)
    return { cancelled: below + ended, ...(await leaveChildSets(tx, rows, parents, options.actor)) }
  },
}

/** deleteJob for many. */
export const DELETE: BulkVerb = {
  states: JOB_STATES,
  allowed: () => 'true',
  cancelsBelow: () => true,
  isDone: () => false,
  async act(tx, rows, parents, options) {
    const cancelled = await cancelDescendants(tx, idsOf(rows), ORPHANED.deleted, options.actor)
    await deleteRows(tx, idsOf(rows), options)
    return { cancelled, ...(await leaveChildSets(tx, rows, parents, options.actor)) }
  },
}

/** retryJob for many. Children whose parent has ended without keeping them, or is gone, are not for it: retry the parent. */
export const RETRY: BulkVerb = {
  states: ['failed', 'cancelled'],
  allowed: (t) => `j.archived_at is null and (j.parent_id is null or exists (
    select from ${t.job} p where p.id = j.parent_id and (p.state not in (${TERMINAL_SQL}) or p.orphan_policy = 'keep')))`,
  cancelsBelow: () => false,
  isDone: (row) => !isEnded(row),
  async act(tx, rows, parents, { actor, reason = 'retried' }) {
    const { woken } = await reopenLocked(tx, rows, parents, { actor, reason, descendants: false, children: 'reopen' })
    return { ...NOTHING, cancelled: 0, woken }
  },
}

function keepsNothing(row: Pick<JobTable, 'orphan_policy'>): boolean {
  return row.orphan_policy !== 'keep'
}

function isEnded(row: Pick<JobTable, 'state'>): boolean {
  return isTerminal(row.state as JobState)
}

function idsOf(rows: readonly JobTable[]): string[] {
  return rows.map((row) => row.id)
}
