import type { Database } from '../../db/database.ts'
import { statement, unindexed } from '../../db/statement.ts'
import { ValidationError } from '../errors.ts'
import { insertEvents } from '../event-sql.ts'
import { storable } from '../failure/describe-error.ts'
import type { Progress } from '../job.ts'

/** Shortest time between two writes of one job, in ms. */
const INTERVAL_MS = 1000
const MAX_MESSAGE_BYTES = 1024

/** Takes what a handler tells of its progress. */
export interface ProgressSink {
  /** @throws {ValidationError} when a figure is not finite. */
  report(current: number, total?: number, message?: string): void
  /** Writes what is not written yet. Nothing is taken afterwards. */
  flush(): Promise<void>
  /** Nothing is written or taken any more. */
  close(): void
}

/** What a sink tells its attempt, and what it goes through. */
export interface ProgressHooks {
  /** The attempt no longer holds the job: nothing was written. */
  onStale(): void
  /** Runs a write; tries again while the database is away. */
  attempt<T>(write: () => Promise<T>): Promise<T>
  /** A write failed for good. */
  onError(error: unknown): void
  onWritten(): void
}

/** Where progress goes. */
export interface ProgressTarget extends ProgressHooks {
  db: Database
  jobId: string
  claimToken: string
  actor: string
}

/**
 * Progress as it is stored.
 *
 * @throws {ValidationError} when a figure is not finite.
 */
export function progressOf(current: number, total?: number, message?: string): Progress {
  for (const [name, figure] of Object.entries({ current, total })) {
    if (figure !== undefined && !Number.isFinite(figure)) throw ValidationError.of(name, 'must be a finite number')
  }
  return {
    current,
    ...(total !== undefined && { total }),
    ...(message !== undefined && { message: storable(String(message), MAX_MESSAGE_BYTES) }),
  }
}

/** Writes an attempt's progress: the first report at once, then the latest of each second, and the last one by `flush`. */
export class ProgressReporter implements ProgressSink {
  readonly #target: ProgressTarget
  #pending: Progress | null = null
  #writtenAt = Number.NEGATIVE_INFINITY
  #writing: Promise<void> | null = null
  #timer: NodeJS.Timeout | undefined
  #closed = false

  constructor(target: ProgressTarget) {
    this.#target = target
  }

  report(current: number, total?: number, message?: string): void {
    if (this.#closed) return
    this.#pending = progressOf(current, total, message)
    this.#schedule()
  }

  async flush(): Promise<void> {
    this.close()
    await this.#writing
    if (this.#pending) await this.#write()
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#timer)
  }

  #schedule(): void {
    if (this.#writing || this.#timer || this.#closed) return
    const wait = this.#writtenAt + INTERVAL_MS - performance.now()
    if (wait <= 0) void this.#write()
    else {
      this.#timer = setTimeout(() => {
        this.#timer = undefined
        void this.#write()
      }, wait)
    }
  }

  async #write(): Promise<void> {
    const progress = this.#pending
    this.#pending = null
    this.#writtenAt = performance.now()
    this.#writing = this.#send(progress).finally(() => {
      this.#writing = null
      if (this.#pending) this.#schedule()
    })
    await this.#writing
  }

  async #send(progress: Progress | null): Promise<void> {
    const { db, jobId, claimToken, actor, attempt, onStale, onError, onWritten } = this.#target
    const parameters = [jobId, claimToken, JSON.stringify(progress), actor]
    try {
      const rows = await attempt(() => db.query(writeProgress, parameters))
      if (rows.length === 0) onStale()
      else onWritten()
    } catch (error) {
      onError(error)
    }
  }
}

// Fenced by the claim token. Locks the one row that it writes.
const writeProgress = statement<{ job_id: string }>(
  'progress.write',
  (t) => `
  with reported as (
    update ${t.job} set progress = $3::jsonb, version = version + 1, updated_at = now()
    where id = $1 and claim_token = $2 and ${unindexed(`state = 'running'`)}
    returning *
  )
  ${insertEvents(t)}
  select 'progress', id, tree_id, parent_id, type, state, state, phase, wave, attempt, version, $4, null, progress
  from reported
  returning job_id`,
)
