import type { Database } from '../db/database.ts'
import { statement } from '../db/statement.ts'
import type { JobTable } from '../db/tables.ts'
import { type Tx, transaction } from '../db/transaction.ts'
import { cancelLocked, type EndReport, leaveChildSet, lockSubtree, type VerbOptions } from './cascade.ts'
import { InvalidStateError, NotFoundError } from './errors.ts'
import { insertEvents } from './event-sql.ts'
import { type Job, jobFromRow } from './job.ts'
import { lockJobs, lockTreeShared } from './locks.ts'
import { isTerminal, type JobState } from './states.ts'
import { wakeParents } from './wake.ts'

/** A steered job as it is afterwards, and the parents that this woke. */
export interface Steered {
  job: Job
  woken: string[]
}

/**
 * Sets a job aside: a queued or waiting one at once, a running one when its attempt ends in a retry or a wait. A job
 * that is paused already stays so.
 *
 * @throws {NotFoundError}
 * @throws {InvalidStateError} it is terminal
 */
export async function pauseJob(db: Database, id: string, { actor, reason }: VerbOptions): Promise<Steered> {
  return transaction(db, async (tx) => {
    const row = await lockOne(tx, id)
    if (isTerminal(row.state as JobState)) throw new InvalidStateError(id, row.state, 'paused')
    if (row.state === 'running') await tx.query(requestPause, [id])
    else await tx.query(pause, [id, actor, reason ?? null])
    return { job: await readBack(tx, id), woken: [] }
  })
}

/**
 * Lets a paused job go on where it was: QUEUED, or WAITING, in which case its wake is checked at once. For a running job
 * that was to be paused, takes that back.
 *
 * @throws {NotFoundError}
 * @throws {InvalidStateError} it is neither paused nor about to be
 */
export async function resumeJob(db: Database, id: string, { actor, reason }: VerbOptions): Promise<Steered> {
  return transaction(db, async (tx) => {
    const row = await lockOne(tx, id)
    if (row.state === 'running' && row.pause_requested) await tx.query(unrequestPause, [id])
    else if (row.state === 'paused') await tx.query(resume, [id, actor, reason ?? null])
    else throw new InvalidStateError(id, row.state, 'resumed')
    const woken = await wakeIfWaiting(tx, row, actor)
    return { job: await readBack(tx, id), woken }
  })
}

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
    await tx.query(archive, [id, actor, reason ?? null])
    if (parent) ends.push(await leaveChildSet(tx, row, parent, actor))
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
      await tx.query(countChild, [row.parent_id, isTerminal(row.state as JobState) ? 0 : 1])
    }
    const woken = await wakeIfWaiting(tx, row, actor)
    return { job: await readBack(tx, id), woken }
  })
}

/** Locks: the tree shared, then the job's row, with its parent's if asked for. */
async function lockOne(tx: Tx, id: string, withParent = false): Promise<JobTable> {
  const [found] = await tx.query(findJob, [id])
  if (!found) throw new NotFoundError(id)
  await lockTreeShared(tx, found.tree_id)
  const row = (await lockJobs(tx, withParent ? [id, found.parent_id] : [id])).get(id)
  if (!row) throw new NotFoundError(id)
  return row
}

async function wakeIfWaiting(tx: Tx, row: JobTable, actor: string): Promise<string[]> {
  const candidates = [{ id: row.id, assigneeId: row.assignee_id }]
  const outcomes = await wakeParents(tx, candidates, { source: 'edge', actor })
  return outcomes.filter((wake) => wake.outcome === 'woken').map((wake) => wake.id)
}

async function readBack(tx: Tx, id: string): Promise<Job> {
  const [row] = await tx.query(readJob, [id])
  return jobFromRow(row!)
}

const findJob = statement<{ tree_id: string; parent_id: string | null }>(
  'control.find',
  (t) => `select tree_id, parent_id from ${t.job} where id = $1`,
)

const readJob = statement<JobTable>('control.read', (t) => `select * from ${t.job} where id = $1`)

const requestPause = statement(
  'control.request-pause',
  (t) => `update ${t.job} set pause_requested = true, updated_at = now() where id = $1 and state = 'running'`,
)

const unrequestPause = statement(
  'control.unrequest-pause',
  (t) => `update ${t.job} set pause_requested = false, updated_at = now() where id = $1 and state = 'running'`,
)

// The row is locked already, here and below: its state is what it was when it was read.
const pause = statement(
  'control.pause',
  (t) => `
  with paused as (
    update ${t.job} j
    set state = 'paused', paused_from = j.state, version = j.version + 1, updated_at = now()
    where j.id = $1 and j.state in ('queued', 'waiting')
    returning j.*
  )
  ${insertEvents(t)}
  select 'moved', id, tree_id, parent_id, type, paused_from, state, phase, wave, attempt, version, $2, $3, null
  from paused`,
)

const resume = statement(
  'control.resume',
  (t) => `
  with resumed as (
    update ${t.job} j
    set state = j.paused_from, paused_from = null,
      waiting_since = case when j.paused_from = 'waiting' then now() end, version = j.version + 1, updated_at = now()
    where j.id = $1 and j.state = 'paused'
    returning j.*
  )
  ${insertEvents(t)}
  select 'moved', id, tree_id, parent_id, type, 'paused', state, phase, wave, attempt, version, $2, $3, null
  from resumed`,
)

const archive = statement(
  'control.archive',
  (t) => `
  with archived as (
    update ${t.job} j set archived_at = now(), version = j.version + 1, updated_at = now()
    where j.id = $1 and j.archived_at is null
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

const countChild = statement(
  'control.count-child',
  (t) => `update ${t.job} set child_count = child_count + 1, open_children = open_children + $2 where id = $1`,
)
