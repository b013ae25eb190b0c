import type { JobTable } from '../db/tables.ts'
import { toleranceOf } from './failure-tolerance.ts'
import type { PreparedJob } from './prepare.ts'
import type { JobState, Phase } from './states.ts'

/** Any JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json }

/** Kinds of error that an attempt ends with; see `retry.ts` for how an error becomes one. */
export const FAILURE_CODES = [
  'AI_FAILURE',
  'NETWORK',
  'TIMEOUT',
  'DATABASE',
  'RATE_LIMITED',
  'VALIDATION',
  'NOT_FOUND',
  'PARSE',
  'LEASE_LOST',
  'CHILD_FAILED',
  'UNKNOWN',
] as const
export type FailureCode = (typeof FAILURE_CODES)[number]

/** Why a job was cancelled. Stored in lower case, like every enumeration. */
export const CANCEL_CODES = [
  'parent_completed',
  'parent_failed',
  'parent_cancelled',
  'parent_deleted',
  'requested',
  'timeout',
  'archived',
] as const
export type CancelCode = (typeof CANCEL_CODES)[number]

/** What a child's failure does to its parent. */
export type ChildFailurePolicy = 'continue' | 'fail_parent' | 'ignore'

/** What becomes of active children when their parent ends. */
export type OrphanPolicy = 'cancel' | 'keep'

/** Who noticed that a parent's children are all settled. */
export type WakeSource = 'edge' | 'reconciler' | 'manual' | 'timeout'

/** Time limits of a job in milliseconds; absent is none. */
export interface Timeouts {
  ingest?: number
  aggregate?: number
  wait?: number
  onWaitTimeout?: 'fail' | 'aggregate'
}

/** How far a job says it is. */
export interface Progress {
  current: number
  total?: number
  message?: string
}

/** A job as the engine returns it: the stored fields under their public names. Ids are bare UUIDs here. */
export interface Job {
  id: string
  treeId: string
  parentId: string | null
  parentWave: number | null
  depth: number
  type: string
  queue: string
  priority: number
  runAt: Date
  key: string | null
  payload: Json
  result: Json
  metadata: Json
  state: JobState
  phase: Phase
  wave: number
  /** Label of the child set that it collects or has last collected: its children's `parentWave`. */
  spawnWave: number
  version: number
  checkpoint: Json
  attempt: number
  claimToken: string | null
  workerId: string | null
  claimedAt: Date | null
  retryCount: number
  maxRetries: number
  completionEpoch: number
  childCount: number
  openChildren: number
  progress: Progress | null
  assigneeId: string | null
  ephemeral: boolean
  archivedAt: Date | null
  onChildFailure: ChildFailurePolicy
  /** `3` or `10%`; null: no limit. */
  failureTolerance: string | null
  orphanPolicy: OrphanPolicy
  timeouts: Timeouts
  error: string | null
  errorCode: FailureCode | null
  errorStack: string | null
  cancelReason: string | null
  cancelCode: CancelCode | null
  skippedIngest: boolean
  pausedFrom: 'queued' | 'waiting' | null
  createdAt: Date
  updatedAt: Date
  startedAt: Date | null
  finishedAt: Date | null
}

/** A row of `job` under its public names. */
export function jobFromRow(row: JobTable): Job {
  return {
    id: row.id,
    treeId: row.tree_id,
    parentId: row.parent_id,
    parentWave: row.parent_wave,
    depth: row.depth,
    type: row.type,
    queue: row.queue,
    priority: row.priority,
    runAt: row.run_at,
    key: row.key,
    payload: row.payload as Json,
    result: row.result as Json,
    metadata: row.metadata as Json,
    state: row.state as JobState,
    phase: row.phase as Phase,
    wave: row.wave,
    spawnWave: row.spawn_wave,
    version: row.version,
    checkpoint: row.checkpoint as Json,
    attempt: row.attempt,
    claimToken: row.claim_token,
    workerId: row.worker_id,
    claimedAt: row.claimed_at,
    retryCount: row.retry_count,
    maxRetries: row.max_retries,
    completionEpoch: row.completion_epoch,
    childCount: row.child_count,
    openChildren: row.open_children,
    progress: row.progress as Progress | null,
    assigneeId: row.assignee_id,
    ephemeral: row.ephemeral,
    archivedAt: row.archived_at,
    onChildFailure: row.on_child_failure as ChildFailurePolicy,
    failureTolerance: toleranceOf(row.failure_tolerance),
    orphanPolicy: row.orphan_policy as OrphanPolicy,
    timeouts: row.timeouts as Timeouts,
    error: row.error,
    errorCode: row.error_code as FailureCode | null,
    errorStack: row.error_stack,
    cancelReason: row.cancel_reason,
    cancelCode: row.cancel_code as CancelCode | null,
    skippedIngest: row.skipped_ingest,
    pausedFrom: row.paused_from as 'queued' | 'waiting' | null,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    startedAt: row.started_at,
    finishedAt: row.finished_at,
  }
}

/** A job to be enqueued or spawned, with its children if it has any. */
export interface NewJob {
  type: string
  /** Default `{}`. */
  payload?: unknown
  queue?: string
  priority?: number
  runAt?: Date
  key?: string
  metadata?: Json
  maxRetries?: number
  assigneeId?: string
  onChildFailure?: ChildFailurePolicy
  /** `3` or `'10%'`. */
  failureTolerance?: number | string
  orphanPolicy?: OrphanPolicy
  /** Milliseconds or text such as `'5m'`. */
  timeouts?: {
    ingest?: number | string
    aggregate?: number | string
    wait?: number | string
    onWaitTimeout?: 'fail' | 'aggregate'
  }
  ephemeral?: boolean
  concurrencyKey?: string
  /** Given, even empty: the job starts in WAITING and skips its ingest. */
  children?: NewJob[]
}

/** What enqueueing one job came to. */
export interface Enqueued {
  id: string
  /** It was there already (same key), and nothing of the new tree was written. */
  deduplicated: boolean
}

/** How an attempt ended, as the worker hands it to the settler. */
export type Outcome =
  | { kind: 'completed'; result: Json }
  | { kind: 'failed'; error: AttemptError }
  /** QUEUED again after `delayMs`; spends a retry. */
  | { kind: 'retry'; error: AttemptError; delayMs: number }
  /** QUEUED again after `delayMs` without spending a retry: a snooze, or (delay 0) a shutdown. */
  | { kind: 'requeue'; delayMs: number; reason: string }
  /** The phase called spawn: children and the move to WAITING in one transaction. `result` is kept if the type has no aggregate. */
  | { kind: 'waiting'; children: readonly PreparedJob[]; result?: Json }

/** An attempt's error as it is stored. */
export interface AttemptError {
  message: string
  code: FailureCode
  stack?: string
}
