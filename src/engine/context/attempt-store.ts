import type { Database } from '../../db/database.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { PreparedJob } from '../prepare.ts'
import { type SpawnedChunk, spawnChunk } from '../spawn-chunk.ts'
import { saveCheckpoint } from './checkpoint.ts'
import { type ChildrenStore, databaseChildren } from './children.ts'
import { existingChildren } from './existing-children.ts'
import { type ProgressHooks, ProgressReporter, type ProgressSink } from './progress.ts'

/** Where an attempt's handler reads and writes: the one job that it holds, and that job's children. */
export interface AttemptStore extends ChildrenStore {
  /**
   * @param checkpoint JSON text.
   * @throws {LeaseLostError} when the attempt no longer holds the job.
   */
  saveCheckpoint(checkpoint: string): Promise<void>
  /** Which of the jobs to be spawned are there already, by type and key: their ids. */
  existingChildren(children: readonly PreparedJob[]): Promise<Map<PreparedJob, string>>
  /**
   * Writes children at once, before the phase has ended.
   *
   * @throws {LeaseLostError} when the attempt no longer holds the job.
   * @throws {ParentGoneError} when the job has ended or was deleted.
   */
  spawnChunk(children: readonly PreparedJob[]): Promise<SpawnedChunk>
  progress(hooks: ProgressHooks): ProgressSink
}

/** The store of an attempt in the database; every write is fenced by its claim token. */
export function databaseStore(db: Database, job: ClaimedJob, actor: string): AttemptStore {
  return {
    ...databaseChildren(db, job.id),
    saveCheckpoint: (checkpoint) => saveCheckpoint(db, job, checkpoint),
    existingChildren: (children) => existingChildren(db, job.id, children),
    spawnChunk: (children) => spawnChunk(db, job, children, actor),
    progress: (hooks) => new ProgressReporter({ db, jobId: job.id, claimToken: job.claimToken, actor, ...hooks }),
  }
}
