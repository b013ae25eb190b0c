// What the API says, as far as the client's own documents ask for it. Enums may gain values: have a default branch.

export type JobState = 'QUEUED' | 'RUNNING' | 'WAITING' | 'PAUSED' | 'COMPLETED' | 'FAILED' | 'CANCELLED'
export type Phase = 'INGEST' | 'AGGREGATE'
export type JobEventKind = 'CREATED' | 'MOVED' | 'PROGRESS' | 'ARCHIVED' | 'UNARCHIVED' | 'DELETED'
export type EndReason = 'SLOW_CONSUMER' | 'CURSOR_EXPIRED' | 'SHUTDOWN'

/** Number of jobs by state, without archived ones. */
export interface StateCounts {
  total: number
  /** Not terminal. */
  open: number
  queued: number
  running: number
  waiting: number
  paused: number
  completed: number
  failed: number
  cancelled: number
}

/** A job, as far as it is asked for unless fields are given. Ids are `JB_…`, instants RFC 3339 in UTC. */
export interface WatchedJob {
  id: string
  /** Of two copies of a job keep the one with the higher version. */
  version: number
  treeId: string
  parentId: string | null
  depth: number
  type: string
  queue: string
  key: string | null
  state: JobState
  phase: Phase
  wave: number
  attempt: number
  retryCount: number
  maxRetries: number
  childCount: number
  openChildren: number
  progress: { current: number; total: number | null; message: string | null } | null
  error: string | null
  errorCode: string | null
  cancelCode: string | null
  cancelReason: string | null
  createdAt: string
  updatedAt: string
  startedAt: string | null
  finishedAt: string | null
}

/** An event, as far as it is asked for unless fields are given. */
export interface WatchedEvent {
  id: string
  kind: JobEventKind
  jobId: string
  treeId: string
  parentId: string | null
  type: string
  from: JobState | null
  to: JobState | null
  phase: Phase
  wave: number
  attempt: number
  version: number
  at: string
  actor: string
  reason: string | null
}

/** Which events: every given field must hold; a list means any of. */
export interface JobEventFilter {
  treeId?: string | null
  jobIds?: readonly string[] | null
  /** True: of roots only; false: of children only. */
  roots?: boolean | null
  types?: readonly string[] | null
  kinds?: readonly JobEventKind[] | null
  /** Into these states. */
  to?: readonly JobState[] | null
}

/** What to apply to a tree: drop all if `reset`, put `jobs` by id, take `removed` away. */
export interface TreeUpdate<J> {
  reset: boolean
  jobs: J[]
  removed: string[]
  counts: StateCounts
  /** Where to go on after this update. */
  cursor: string
  /** Nothing more was known when this was sent, and the snapshot is complete. */
  caughtUp: boolean
}

/**
 * Some events, in order; none in a first frame and in a beat. Or a gap: the cursor was older than what the log keeps, or
 * from before a crash or restore of the database. Events are missing, so read afresh what you have made of them; the
 * stream goes on after the gap by itself.
 */
export type EventFrame<E> =
  | { type: 'events'; events: E[]; cursor: string; caughtUp: boolean }
  | { type: 'gap'; cursor: string }
