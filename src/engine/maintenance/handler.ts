import type { Logger } from 'pino'
import type { Database } from '../../db/database.ts'
import type { Json } from '../job.ts'
import type { EngineMetrics } from '../metrics.ts'

/** What a handler works with. */
export interface MaintenanceContext {
  readonly db: Database
  readonly logger: Logger
  readonly metrics: EngineMetrics
  /** What it last remembered, in whichever process; null: nothing. */
  readonly state: Json
  /** Keeps a state for its next run, wherever that is, if this run still has its turn. */
  remember(state: Json): Promise<void>
  /** Aborted when the run took too long, lost its turn to another process, or the loop stops and cannot wait longer. */
  readonly signal: AbortSignal
  /** To be called after a commit that workers or watchers are waiting for. */
  changed(): void
}

/** One task of the maintenance loop. It must be safe to run twice at once: the loop only makes that rare. */
export interface MaintenanceHandler {
  /** Unique; also the key of its row in `maintenance`. */
  readonly name: string
  /** Time between runs, over all processes, in ms. */
  readonly intervalMs: number
  /** Longest run, in ms; default 60 s. Then its signal is aborted and other processes may run it. */
  readonly deadlineMs?: number
  /**
   * How long a process that vanished in the middle of a run may keep it from running elsewhere, in ms; at most 60,000,
   * default 15,000.
   */
  readonly turnMs?: number
  run(context: MaintenanceContext): Promise<void>
}

/** One handler, as it is in this process. */
export interface HandlerState {
  readonly name: string
  readonly running: boolean
  /** Runs that ended, failed ones included. */
  readonly runs: number
  readonly failures: number
  /** Of the last run; null if it went well. */
  readonly lastError: string | null
}

/** Who the event log names for what maintenance does. */
export const MAINTENANCE_ACTOR = 'reconciler'
