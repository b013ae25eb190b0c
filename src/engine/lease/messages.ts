import type { WorkerIdentity } from './identity.ts'

/** What the heartbeat thread is started with. */
export interface ThreadInput {
  connectionString: string
  schema: string
  worker: WorkerIdentity
}

/** One beat that succeeded, and what it saw. */
export interface BeatReport {
  /**
   * When the beat's statement was sent, on the clock of `monotonicMs()`: it saw every claim that had committed before
   * then, and may have missed a later one.
   */
  askedAt: number
  /** The jobs that are RUNNING for this worker. */
  held: { jobId: string; claimToken: string }[]
  /** Workers whose rows are marked dead: some of their jobs may be left to give back. */
  deadWorkers: string[]
  /** The version that the schema has by now: higher than the worker's own, and its program is outdated and must drain. */
  newestSchema: number
}

/** An error on its way out of the thread. */
export interface ThreadError {
  message: string
  code: string | undefined
}

/** From the main thread to the heartbeat thread. */
export type ToThread =
  /** Say in the row that no more jobs are claimed, and beat at once. */
  { kind: 'set-stopping' } | { kind: 'stop'; removeRow: boolean }

/** From the heartbeat thread to the main thread. */
export type FromThread =
  | { kind: 'registered' }
  /** Registering failed for a reason that trying again does not mend. */
  | { kind: 'refused'; error: ThreadError }
  | { kind: 'beat'; report: BeatReport }
  /** The row is dead or gone: the beat has ended. */
  | { kind: 'lost' }
  /** A beat failed; it is tried again. */
  | { kind: 'failing'; error: ThreadError }
  /** A beat with `stopping` was tried. */
  | { kind: 'stopping-set' }
  /** The last message. */
  | { kind: 'stopped' }
