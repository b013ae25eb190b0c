import type { Database } from '../db/database.ts'
import { statement } from '../db/statement.ts'
import { transaction } from '../db/transaction.ts'
import { added } from './counter-sql.ts'
import { insertJobs } from './enqueue.ts'
import { LeaseLostError, ParentGoneError } from './errors.ts'
import { lockJobs, lockTreeShared } from './locks.ts'
import type { PreparedJob } from './prepare.ts'
import { reopenCancelledChildren } from './reopen.ts'
import type { SettleJob } from './settle/settle-batch.ts'
import { isTerminal, type JobState } from './states.ts'

/** What became of the children of a chunk. */
export interface SpawnedChunk {
  /** New ones. */
  created: number
  /** Those whose keys were taken: of an earlier attempt, or of an earlier child. */
  existing: number
}

/**
 * Writes children of a job that runs, before its phase has ended: one chunk of a fan-out too large for one transaction.
 * Each has a key, so that a retried phase adds only what is missing; of those that are there already, the ones that were
 * cancelled with their parent are reopened.
 *
 * Children go first and the locks come last: tree shared, then rows. The parent's `spawn_wave` is left to the end of the
 * phase: until then, a retried aggregate reads the set that it was woken for.
 *
 * @throws {ParentGoneError} the job has ended, or was deleted
 * @throws {LeaseLostError} the attempt no longer holds it
 */
export async function spawnChunk(
  db: Database,
  job: SettleJob,
  children: readonly PreparedJob[],
  actor: string,
): Promise<SpawnedChunk> {
  return transaction(db, async (tx) => {
    const spawnWave = job.wave + 1
    const inserted = await insertJobs(tx, children, { ...job, spawnWave }, actor)
    await lockTreeShared(tx, job.treeId)
    const rows = await lockJobs(tx, [...inserted.existing, job.id])
    const parent = rows.get(job.id)
    if (!parent) throw new ParentGoneError(job.id, 'deleted')
    if (isTerminal(parent.state as JobState)) throw new ParentGoneError(job.id, parent.state)
    if (parent.state !== 'running' || parent.claim_token !== job.claimToken) throw new LeaseLostError(job.id)
    rows.delete(job.id)
    const reopened = await reopenCancelledChildren(tx, [...rows.values()], actor)
    if (inserted.existing.length > 0) await tx.query(joinWave, [inserted.existing, spawnWave, parent.spawn_wave])
    await tx.query(countChunk, [job.id, inserted.created, inserted.created + reopened])
    return { created: inserted.created, existing: children.length - inserted.created }
  })
}

// Of an earlier attempt whose wave was never delivered: they belong to the set that is spawned now. The rows are locked.
const joinWave = statement(
  'spawn-chunk.join-wave',
  (t) =>
    `update ${t.job} set parent_wave = $2, updated_at = now() where id = any($1::uuid[]) and parent_wave > $3 and parent_wave <> $2`,
)

// The row is locked, and was checked under the lock.
const countChunk = statement(
  'spawn-chunk.count',
  (t) => `
  update ${t.job} 
  set child_count = ${added('child_count', '$2::int')}, open_children = ${added('open_children', '$3::int')},
    updated_at = now()
  where id = $1`,
)
