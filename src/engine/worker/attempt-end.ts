import type { FailedAttempt } from '../failure/retry.ts'
import type { Outcome } from '../job.ts'

/** How an attempt ended. `outcome` null: its job is not its own any more, nothing is to be written. */
export interface AttemptEnd {
  outcome: Outcome | null
  /** For the log, if it threw or its time ran out. */
  failure?: FailedAttempt
}

/** The job is somebody else's, or gone. */
export const DROPPED: AttemptEnd = { outcome: null }

/** The job goes back to where it was, and no retry is spent. */
export const PUT_BACK: AttemptEnd = { outcome: { kind: 'requeue', delayMs: 0, reason: 'shutdown' } }
