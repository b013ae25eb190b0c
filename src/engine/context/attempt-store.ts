import type { Database } from '../../db/database.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { PreparedJob } from '../prepare.ts'
import { type SpawnedChunk, spawnChunk } from '../spawn-chunk.ts'
import { saveCheckpoint } from './checkpoint.ts'
import { type ChildrenStore, DatabaseChildren } from './children.ts'
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
export class DatabaseStore extends DatabaseChildren implements AttemptStore {
  readonly #db: Database
  readonly #job: ClaimedJob
  readonly #actor: string

  constructor(db: Database, job: ClaimedJob, actor: string) {
    super(db, job.id)
    this.#db = db
    this.#job = job
    this.#actor = actor
  }

  saveCheckpoint(checkpoint: string): Promise<void> {
    return saveCheckpoint(this.#db, this.#job, checkpoint)
  }

  existingChildren(children: readonly PreparedJob[]): Promise<Map<PreparedJob, string>> {
    return existingChildren(this.#db, this.#job.id, children)
  }

  spawnChunk(children: readonly PreparedJob[]): Promise<SpawnedChunk> {
    return spawnChunk(this.#db, this.#job, children, this.#actor)
  }

  progress(hooks: ProgressHooks): ProgressSink {
    const { id: jobId, claimToken } = this.#job
    return new ProgressReporter({ db: this.#db, jobId, claimToken, actor: this.#actor, ...hooks })
  }
}
