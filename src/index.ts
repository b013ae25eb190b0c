export { SchemaTooNewError, SchemaTooOldError } from './db/migration-errors.ts'
export type { Assignee, AssigneeStatus } from './engine/assignee.ts'
export type { BulkReport } from './engine/bulk/bulk.ts'
export type { BulkJobsOptions, EngineBulk } from './engine/bulk/engine-bulk.ts'
export type { ConcurrencyLimit } from './engine/claim/concurrency-limit.ts'
export type { Child, ChildCounts, ChildOf, ChildrenOptions } from './engine/context/children.ts'
export type { AbortCode, ContextOf, JobContext } from './engine/context/context.ts'
export { createEngine } from './engine/create-engine.ts'
export {
  type AnyContract,
  type ContractJob,
  declareJob,
  type JobContract,
  type JobOptions,
  type PayloadInput,
  type ResultOutput,
} from './engine/definition/contract.ts'
export {
  type AnyDefinition,
  defineJob,
  isJobDefinition,
  type JobDefinition,
  type TypeSettings,
  type TypeTimeouts,
} from './engine/definition/define-job.ts'
export type { ActorOptions, Engine, EngineFeed, EnqueueOptions, SteerOptions, SubtreeOptions } from './engine/engine.ts'
export type { EngineLists, JobsRequest } from './engine/engine-lists.ts'
export type { EngineOptions } from './engine/engine-settings.ts'
export {
  AlreadyDeliveredError,
  AssigneeNotActiveError,
  ChildrenOpenError,
  CursorExpiredError,
  EngineError,
  type InputIssue,
  InvalidCursorError,
  InvalidStateError,
  JobCycleError,
  LeaseLostError,
  NotFoundError,
  ParentGoneError,
  UnavailableError,
  ValidationError,
  WaitTimeoutError,
} from './engine/errors.ts'
export type { ExplainReason, Explanation, ExplanationFacts } from './engine/explain/explanation.ts'
export type { IsRetryable } from './engine/failure/classify.ts'
export {
  type HandlerErrorOptions,
  PermanentError,
  RetryableError,
  SnoozeError,
} from './engine/failure/handler-errors.ts'
export type { BackoffPolicy } from './engine/failure/retry.ts'
export type { JobEvent } from './engine/feed/event.ts'
export type { JobEventFilter } from './engine/feed/filter.ts'
export type { FeedBatch, FeedEnd, FeedStats, ReadFeedOptions, SubscribeOptions } from './engine/feed/hub.ts'
export type {
  CancelCode,
  ChildFailurePolicy,
  Enqueued,
  FailureCode,
  Job,
  Json,
  NewJob,
  OrphanPolicy,
  Progress,
  Timeouts,
  WakeSource,
} from './engine/job.ts'
export type { JobHandle } from './engine/job-handle.ts'
export type { GroupCount } from './engine/reads/groups.ts'
export type { JobFilter } from './engine/reads/job-filter.ts'
export type { JobOrder } from './engine/reads/job-page.ts'
export type { JobType } from './engine/reads/job-types.ts'
export type { Edge, Page, PageArgs } from './engine/reads/page.ts'
export type { Queue } from './engine/reads/queues.ts'
export type { WakeReceipt } from './engine/reads/receipts.ts'
export type { StateCounts } from './engine/reads/state-counts.ts'
export type { Worker } from './engine/reads/workers.ts'
export type { RetentionOptions } from './engine/retention/options.ts'
export type { JobStream, StreamedChildren } from './engine/spawn-stream.ts'
export type { JobState, Phase } from './engine/states.ts'
export type { Stats, WakeStats } from './engine/stats/stats.ts'
export type { WatchStats, WatchStatsOptions } from './engine/stats/watch-stats.ts'
export type { KyselyTransaction, UserTransaction } from './engine/user-transaction.ts'
export type { JobEnd } from './engine/wait-for.ts'
export type { TreeUpdate } from './engine/watch/tree-update.ts'
export type { WatchTree, WatchTreeOptions } from './engine/watch/watch-tree.ts'
export { AttemptAbortedError } from './engine/worker/abort.ts'
