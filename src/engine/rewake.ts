import type { Database } from '../db/database.ts'
import { statement } from '../db/statement.ts'
import type { JobTable } from '../db/tables.ts'
import { type Tx, transaction } from '../db/transaction.ts'
import { lockSubtree, type VerbOptions } from './cascade.ts'
import {
  AlreadyDeliveredError,
  AssigneeNotActiveError,
  ChildrenOpenError,
  InvalidStateError,
  ParentGoneError,
} from './errors.ts'
import type { Job } from './job.ts'
import { readBack } from './one-job.ts'
import { assigneesById } from './reads/assignees.ts'
import { receiptsOf, type WakeReceipt } from './reads/receipts.ts'
import { endedWaiting, reopenToWake } from './reopen.ts'
import { ACTIVE_SQL } from './states.ts'
import { wakeParents } from './wake.ts'

/** How a parent is woken by hand. */
export interface RewakeOptions extends VerbOptions {
  /** With children open, or a failed parent once more. */
  force?: boolean
}

/** The parent as it is afterwards, and the proof. */
export interface Rewoken {
  job: Job
  receipt: WakeReceipt
}

/** Most open children that a refusal names. */
const NAMED_CHILDREN = 20

/**
 * Wakes a parent that waits, by hand: as the edge would, if all its children have settled; with what there is, if
 * forced. Forced, a parent that failed aggregates again: children that have ended stay as they are, open ones are passed
 * over. Locks: the tree exclusively, since a failed parent is reopened; then the job's and its parent's rows.
 *
 * @throws {NotFoundError}
 * @throws {ChildrenOpenError} it waits for children that are open, and is not forced
 * @throws {AssigneeNotActiveError} also when forced: nobody could claim it
 * @throws {AlreadyDeliveredError} it was woken and is on its way, also when forced
 * @throws {InvalidStateError} it neither waits nor has failed (with `force`) in a wave of its children; it is archived; or
 *   its own parent has ended
 */
export async function rewakeParent(db: Database, id: string, options: RewakeOptions): Promise<Rewoken> {
  const { actor, reason, force = false } = options
  return transaction(db, async (tx) => {
    const { row, parent } = await lockSubtree(tx, id)
    const again = force && failedParent(row)
    if (again) await reopen(tx, row, parent, { actor, reason: reason ?? 'woken again by hand' })
    else await refuse(tx, row)
    await wake(tx, row, { ...options, force, again })
    const [receipt] = await receiptsOf(tx, [id])
    return { job: await readBack(tx, id), receipt: receipt! }
  })
}

/** A parent whose children were all spawned when it failed: one that failed in its ingest has yet to spawn. */
function failedParent(row: JobTable): boolean {
  return row.state === 'failed' && row.archived_at === null && (row.phase === 'aggregate' || endedWaiting(row))
}

async function reopen(
  tx: Tx,
  row: JobTable,
  parent: JobTable | undefined,
  options: { actor: string; reason: string },
): Promise<void> {
  await reopenToWake(tx, row, parent, options).catch((error: unknown) => {
    if (!(error instanceof ParentGoneError)) throw error
    throw new InvalidStateError(row.id, 'failed under a parent that has ended', 'woken')
  })
}

/** Lets a parent pass that waits to be woken. */
async function refuse(tx: Tx, row: JobTable): Promise<void> {
  const { id, state } = row
  if (row.archived_at !== null) throw new InvalidStateError(id, `${state} and archived`, 'woken')
  if (row.phase === 'aggregate' && (state === 'queued' || state === 'running')) {
    const [receipt] = await receiptsOf(tx, [id])
    if (receipt) throw new AlreadyDeliveredError(receipt, state.toUpperCase())
  }
  if (state !== 'waiting') throw new InvalidStateError(id, state, 'woken')
  if (row.failing_child_id !== null) throw new InvalidStateError(id, 'about to fail for a child', 'woken')
}

async function wake(
  tx: Tx,
  row: JobTable,
  { actor, reason, force, again }: VerbOptions & { force: boolean; again: boolean },
): Promise<void> {
  const options = { source: 'manual', actor, forced: force, again, ...(reason !== undefined && { reason }) } as const
  const [outcome] = await wakeParents(tx, [{ id: row.id, assigneeId: row.assignee_id }], options)
  if (outcome?.outcome === 'woken') return
  if (outcome?.outcome === 'open' && !force) {
    const open = await tx.query(findOpenChildren, [row.id, NAMED_CHILDREN])
    throw new ChildrenOpenError(
      row.id,
      outcome.open,
      open.map((child) => child.id),
    )
  }
  const [assignee] = await assigneesById(tx, [row.assignee_id!])
  throw new AssigneeNotActiveError(row.id, row.assignee_id!, assignee?.status ?? null)
}

const findOpenChildren = statement<{ id: string }>(
  'rewake.open-children',
  (t) => `
  select id from ${t.job}
  where parent_id = $1 and archived_at is null and state in (${ACTIVE_SQL})
  order by id limit $2`,
)
