import type { Database } from '../db/database.ts'
import { statement } from '../db/statement.ts'
import type { JobTable } from '../db/tables.ts'
import { transaction } from '../db/transaction.ts'
import { insertJobs } from './enqueue.ts'
import { InvalidStateError, NotFoundError, ParentGoneError } from './errors.ts'
import type { Enqueued, Json } from './job.ts'
import { findPlace, lockJobs, lockTreeShared } from './locks.ts'
import { gainMembers } from './membership.ts'
import type { PreparedJob } from './prepare.ts'
import { reopenCancelledChildren } from './reopen.ts'
import { wakeSettled } from './settle/apply-moves.ts'
import type { SettleJob } from './settle/settle-batch.ts'
import { startWaiting } from './start-waiting.ts'
import { isTerminal, type JobState } from './states.ts'
import { wakeAtEdge } from './wake.ts'

/** How the end of a phase that spawned went. `failing`: a child's failure is not borne, the parent is to be failed. */
export type WaitEnd = { outcome: 'settled'; woken: boolean; failing: boolean } | { outcome: 'stale' }

/**
 * Ends a phase that called spawn: its children and the move RUNNING to WAITING in one transaction, and the wake too if
 * none of them is open. If the attempt no longer holds the job, nothing is written. Children go first and the locks come
 * last, so that a large fan-out holds them only briefly: tree shared, the parent's row, assignees.
 */
export async function endPhaseWaiting(
  db: Database,
  job: SettleJob,
  children: readonly PreparedJob[],
  result: Json | undefined,
  actor: string,
): Promise<WaitEnd> {
  return transaction(db, async (tx): Promise<WaitEnd> => {
    const [held] = await tx.query(readHold, [job.id, job.claimToken])
    if (!held) return STALE
    if (held.state !== 'running') return held.waited ? DONE_BEFORE : STALE
    const spawnWave = job.wave + 1
    const inserted = await insertJobs(tx, children, { ...job, spawnWave }, actor)
    await lockTreeShared(tx, job.treeId)
    const rows = await lockJobs(tx, [...inserted.existing, job.id])
    const reopened = await reopenCancelledChildren(tx, [...rows.values()], actor)
    const own = rows.get(job.id)
    if (own?.claim_token !== job.claimToken || own.state !== 'running') throw new Stale()
    const start = {
      id: job.id,
      created: inserted.created,
      opened: inserted.created + reopened,
      spawnWave,
      result: result === undefined ? null : JSON.stringify(result),
    }
    const ends = await wakeSettled(tx, await startWaiting(tx, [start], actor), actor)
    return { outcome: 'settled', woken: ends.woken.length > 0, failing: ends.failing.length > 0 }
  }).catch((error: unknown): WaitEnd => {
    if (error instanceof Stale) return STALE
    throw error
  })
}

const STALE: WaitEnd = { outcome: 'stale' }
// An earlier commit of this very attempt whose answer was lost.
const DONE_BEFORE: WaitEnd = { outcome: 'settled', woken: false, failing: false }

/** Thrown to roll back the children of an attempt that lost its job between the insert and the lock. */
class Stale extends Error {}

/** Children added to a parent, in the order given. */
export interface SpawnedChildren {
  children: Enqueued[]
}

/**
 * Adds children to a parent from outside: one that waits, is paused from waiting, or runs its ingest. A parent that was
 * woken and not yet claimed goes back to WAITING: its wake is withdrawn.
 *
 * @throws {NotFoundError} there is no such parent
 * @throws {ParentGoneError} it is terminal
 * @throws {InvalidStateError} it can take no children now
 */
export async function spawnChildren(
  db: Database,
  parentId: string,
  children: readonly PreparedJob[],
  { actor }: { actor: string },
): Promise<SpawnedChildren> {
  return transaction(db, async (tx) => {
    const [found] = await tx.query(findPlace, [parentId])
    if (!found) throw new NotFoundError(parentId)
    await lockTreeShared(tx, found.tree_id)
    const parent = (await lockJobs(tx, [parentId])).get(parentId)
    if (!parent) throw new ParentGoneError(parentId, 'deleted')
    const spawnWave = childSetLabel(parent)
    const inserted = await insertJobs(
      tx,
      children,
      { id: parentId, treeId: parent.tree_id, depth: parent.depth, spawnWave },
      actor,
    )
    const reason = 'child added: wake withdrawn'
    await gainMembers(tx, parentId, { members: inserted.created, opened: inserted.created, spawnWave, actor, reason })
    await wakeAtEdge(tx, [{ id: parentId, assigneeId: parent.assignee_id }], actor)
    return { children: inserted.results }
  })
}

/** Which child set of its parent a child added from outside belongs to; throws where none can be added. */
function childSetLabel(parent: JobTable): number {
  const state = parent.state as JobState
  const waits = state === 'waiting' || (state === 'paused' && parent.paused_from === 'waiting')
  const woken = parent.phase === 'aggregate' && (state === 'queued' || (state === 'paused' && !waits))
  if (waits || woken) return parent.spawn_wave
  if (state === 'running' && parent.phase === 'ingest') return parent.wave + 1
  if (isTerminal(state)) throw new ParentGoneError(parent.id, state)
  throw new InvalidStateError(parent.id, state, `given children in phase ${parent.phase.toUpperCase()}`)
}

// `waited`: a state that this attempt's own wait leads to. One that was cancelled keeps its token too.
const readHold = statement<{ state: string; waited: boolean }>(
  'spawn.read-hold',
  (t) => `
  select state, state in ('waiting', 'paused') or (state = 'queued' and phase = 'aggregate') as waited
  from ${t.job} where id = $1 and claim_token = $2`,
)
