import type { Database } from '../db/database.ts'
import { statement, unindexed } from '../db/statement.ts'
import type { JobTable } from '../db/tables.ts'
import { type Tx, transaction } from '../db/transaction.ts'
import { lockSubtree, type VerbOptions } from './cascade.ts'
import { refuseCycle } from './descent.ts'
import { InvalidStateError } from './errors.ts'
import { insertEvents } from './event-sql.ts'
import { lockOne, readBack, type Steered } from './one-job.ts'
import { isTerminal, type JobState } from './states.ts'
import { wakeAtEdge } from './wake.ts'

/** Pausing and resuming one job, or a whole subtree. */
export interface PauseOptions extends VerbOptions {
  /** Its active (or paused) descendants too. A paused ancestor alone stops nobody below it. */
  descendants?: boolean
}

/**
 * Sets a job aside: a queued or waiting one at once, a running one when its attempt ends in a retry or a wait. A job
 * that is paused already stays so.
 *
 * @throws {NotFoundError}
 * @throws {InvalidStateError} it is terminal
 */
export async function pauseJob(db: Database, id: string, options: PauseOptions): Promise<Steered> {
  return transaction(db, async (tx) => {
    const rows = await lockJobOrSubtree(tx, id, options)
    const { state } = rows[0]!
    if (isTerminal(state as JobState)) throw new InvalidStateError(id, state, 'paused')
    const ids = rows.map((row) => row.id)
    await tx.query(requestPause, [ids])
    await tx.query(pause, [ids, options.actor, options.reason ?? null])
    return { job: await readBack(tx, id), woken: [] }
  })
}

/**
 * Lets a paused job go on where it was: QUEUED, or WAITING, in which case its wake is checked at once. For a running job
 * that was to be paused, takes that back.
 *
 * @throws {NotFoundError}
 * @throws {InvalidStateError} it is neither paused nor about to be (with `descendants`: it is terminal)
 */
export async function resumeJob(db: Database, id: string, options: PauseOptions): Promise<Steered> {
  return transaction(db, async (tx) => {
    const rows = await lockJobOrSubtree(tx, id, options)
    const { state, pause_requested } = rows[0]!
    const resumable = state === 'paused' || (state === 'running' && pause_requested)
    if (options.descendants ? isTerminal(state as JobState) : !resumable)
      throw new InvalidStateError(id, state, 'resumed')
    const ids = rows.map((row) => row.id)
    await tx.query(unrequestPause, [ids])
    await tx.query(resume, [ids, options.actor, options.reason ?? null])
    const waiting = rows.filter((row) => row.paused_from === 'waiting')
    const candidates = waiting.map((row) => ({ id: row.id, assigneeId: row.assignee_id }))
    const woken = await wakeAtEdge(tx, candidates, options.actor)
    return { job: await readBack(tx, id), woken }
  })
}

/** The job first, then its descendants if asked for. Locks: the tree (shared, or exclusively for a subtree), then rows. */
async function lockJobOrSubtree(tx: Tx, id: string, { descendants }: PauseOptions): Promise<JobTable[]> {
  if (!descendants) return [await lockOne(tx, id)]
  const { row } = await lockSubtree(tx, id)
  const rows = [row]
  for (let level = [row]; level.length > 0; ) {
    level = await tx.query(lockLevel, [level.map((parent) => parent.id)])
    refuseCycle([id], level)
    for (const below of level) rows.push(below)
  }
  return rows
}

const lockLevel = statement<JobTable>(
  'pause.lock-level',
  (t) => `select * from ${t.job} where parent_id = any($1::uuid[]) order by id for no key update`,
)

// The rows are locked already, here and below: their states are what they were when they were read.
const requestPause = statement(
  'pause.request',
  (t) =>
    `update ${t.job} set pause_requested = true, updated_at = now() where id = any($1::uuid[]) and ${unindexed(`state = 'running'`)}`,
)

const unrequestPause = statement(
  'pause.unrequest',
  (t) => `
  update ${t.job} set pause_requested = false, updated_at = now()
  where id = any($1::uuid[]) and ${unindexed(`state = 'running'`)} and pause_requested`,
)

const pause = statement(
  'pause',
  (t) => `
  with paused as (
    update ${t.job} j
    set state = 'paused', paused_from = j.state, version = j.version + 1, updated_at = now()
    where j.id = any($1::uuid[]) and j.state in ('queued', 'waiting')
    returning j.*
  )
  ${insertEvents(t)}
  select 'moved', id, tree_id, parent_id, type, paused_from, state, phase, wave, attempt, version, $2, $3, null
  from paused`,
)

const resume = statement(
  'pause.resume',
  (t) => `
  with resumed as (
    update ${t.job} j
    set state = j.paused_from, paused_from = null,
      waiting_since = case when j.paused_from = 'waiting' then now() end, version = j.version + 1, updated_at = now()
    where j.id = any($1::uuid[]) and j.state = 'paused'
    returning j.*
  )
  ${insertEvents(t)}
  select 'moved', id, tree_id, parent_id, type, 'paused', state, phase, wave, attempt, version, $2, $3, null
  from resumed`,
)
