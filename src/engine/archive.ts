import type { Database } from '../db/database.ts'
import { statement } from '../db/statement.ts'
import type { JobTable } from '../db/tables.ts'
import { type Tx, transaction } from '../db/transaction.ts'
import { cancelLocked, lockSubtree, parentsOf, type VerbOptions } from './cascade.ts'
import { type EndReport, leaveChildSets } from './child-edges.ts'
import { InvalidStateError } from './errors.ts'
import { insertEvents } from './event-sql.ts'
import { jobFromRow } from './job.ts'
import { gainMembers } from './membership.ts'
import { lockOne, readBack, type Steered } from './one-job.ts'
import { isTerminal, type JobState } from './states.ts'
import { wakeAtEdge } from './wake.ts'

/**
 * Takes a job out of lists and out of its parent's child set. An active one is cancelled first, with its subtree.
 * Archiving an archived job changes nothing.
 *
 * @throws {NotFoundError}
 */
export async function archiveJob(db: Database, id: string, { actor, reason }: VerbOptions): Promise<Steered> {
  return transaction(db, async (tx) => {
    const { row, parent } = await lockSubtree(tx, id)
    if (row.archived_at !== null) return { job: jobFromRow(row), woken: [] }
    const ends: EndReport[] = []
    if (!isTerminal(row.state as JobState)) {
      // Without its parent: leaving the child set below settles the edge once, for both.
      const why = { reason: reason ?? 'archived', code: 'archived' as const }
      ends.push(await cancelLocked(tx, row, undefined, why, actor))
    }
    await archiveRows(tx, [id], { actor, ...(reason !== undefined && { reason }) })
    ends.push(await leaveChildSets(tx, [row], parentsOf(parent), actor))
    return { job: await readBack(tx, id), woken: ends.flatMap((end) => end.woken) }
  })
}

/**
 * Puts an archived job back into lists and into its parent's child set. An archived job is terminal, so this opens
 * nothing; one that was archived by plain SQL while it was active counts as open again.
 *
 * @throws {NotFoundError}
 * @throws {InvalidStateError} it is not archived
 */
export async function unarchiveJob(db: Database, id: string, { actor, reason }: VerbOptions): Promise<Steered> {
  return transaction(db, async (tx) => {
    const row = await lockOne(tx, id, true)
    if (row.archived_at === null) throw new InvalidStateError(id, `${row.state} and not archived`, 'unarchived')
    await tx.query(unarchive, [id, actor, reason ?? null])
    if (row.parent_id !== null) {
      const opened = isTerminal(row.state as JobState) ? 0 : 1
      await gainMembers(tx, row.parent_id, { members: 1, opened, actor, reason: 'child unarchived: wake withdrawn' })
    }
    const woken = await wakeIfWaiting(tx, row, actor)
    return { job: await readBack(tx, id), woken }
  })
}

/** Marks rows as archived that this transaction holds locked, and says so in the log. */
export async function archiveRows(tx: Tx, ids: readonly string[], { actor, reason }: VerbOptions): Promise<void> {
  await tx.query(archive, [ids, actor, reason ?? null])
}

async function wakeIfWaiting(tx: Tx, row: JobTable, actor: string): Promise<string[]> {
  const candidates = [{ id: row.id, assigneeId: row.assignee_id }]
  return wakeAtEdge(tx, candidates, actor)
}

const archive = statement(
  'control.archive',
  (t) => `
  with archived as (
    update ${t.job} j set archived_at = now(), version = j.version + 1, updated_at = now()
    where j.id = any($1::uuid[]) and j.archived_at is null
    returning j.*
  )
  ${insertEvents(t)}
  select 'archived', id, tree_id, parent_id, type, state, state, phase, wave, attempt, version, $2, $3, null
  from archived`,
)

const unarchive = statement(
  'control.unarchive',
  (t) => `
  with unarchived as (
    update ${t.job} j set archived_at = null, version = j.version + 1, updated_at = now()
    where j.id = $1 and j.archived_at is not null
    returning j.*
  )
  ${insertEvents(t)}
  select 'unarchived', id, tree_id, parent_id, type, state, state, phase, wave, attempt, version, $2, $3, null
  from unarchived`,
)
