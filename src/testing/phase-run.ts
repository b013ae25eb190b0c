import type { SchemaOutput, SchemaSlot } from '../engine/definition/standard-schema.ts'
import { formatJobId } from '../engine/ids.ts'
import type { AttemptError, ChildFailurePolicy, Json, OrphanPolicy, Progress, Timeouts } from '../engine/job.ts'
import type { PreparedJob } from '../engine/prepare.ts'

/** A child that a phase spawned, with the defaults of its type where that was given. */
export interface SpawnedChild {
  /** `JB_…`, as `ctx.spawn` returned it. */
  id: string
  type: string
  key: string | null
  payload: Json
  metadata: Json
  queue: string
  priority: number
  runAt: Date | null
  maxRetries: number
  onChildFailure: ChildFailurePolicy
  orphanPolicy: OrphanPolicy
  /** In ms. */
  timeouts: Timeouts
  /** Null: none were given, it runs its own ingest. */
  children: SpawnedChild[] | null
}

/** A line that the handler logged: what it gave, with `msg` and pino's `level` number. */
export interface LoggedLine {
  level: number
  msg?: string
  [field: string]: unknown
}

/** How a phase ended. Fields that belong to other outcomes are undefined. */
export type PhaseOutcome<Result> =
  /** It did not spawn: the job ends with this result. */
  | { outcome: 'completed'; result: Result; error?: undefined; delayMs?: undefined }
  /** It spawned, even if nothing. `result` is kept for a type without `aggregate`. */
  | { outcome: 'waiting'; result?: Result | undefined; error?: undefined; delayMs?: undefined }
  /** It threw what is worth another attempt, and retries are left. `delayMs` is random, unless the error says it. */
  | { outcome: 'retry'; error: AttemptError; delayMs: number; result?: undefined }
  /** It threw, for good. */
  | { outcome: 'failed'; error: AttemptError; result?: undefined; delayMs?: undefined }
  /** It threw a `SnoozeError`. */
  | { outcome: 'snoozed'; delayMs: number; result?: undefined; error?: undefined }
  /** Its signal was aborted: nothing of it counts. */
  | { outcome: 'aborted'; result?: undefined; error?: undefined; delayMs?: undefined }

/** What a phase did. */
export type PhaseRun<R extends SchemaSlot, S extends SchemaSlot> = PhaseOutcome<SchemaOutput<R, Json>> & {
  /** In the order they were spawned; of those with the same type and key, the first. */
  spawned: SpawnedChild[]
  /** Every call of `ctx.progress`. */
  progress: Progress[]
  /** What was saved, by it or before it; null if nothing was. */
  saved: SchemaOutput<S, Json> | null
  logs: LoggedLine[]
}

/** A job to be spawned as tests look at it. */
export function spawnedChild(job: PreparedJob): SpawnedChild {
  return {
    id: formatJobId(job.id),
    type: job.type,
    key: job.key,
    payload: JSON.parse(job.payload) as Json,
    metadata: JSON.parse(job.metadata) as Json,
    queue: job.queue,
    priority: job.priority,
    runAt: job.runAt,
    maxRetries: job.maxRetries,
    onChildFailure: job.onChildFailure,
    orphanPolicy: job.orphanPolicy,
    timeouts: job.timeouts,
    children: job.children?.map(spawnedChild) ?? null,
  }
}
