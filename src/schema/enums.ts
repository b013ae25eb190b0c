import type { AssigneeStatus as EngineAssigneeStatus } from '../engine/assignee.ts'
import type { ExplainReason as EngineExplainReason } from '../engine/explain/explanation.ts'
import type { FeedEnd } from '../engine/feed/batch.ts'
import type { JobEventKind as EngineJobEventKind } from '../engine/feed/event.ts'
import type {
  CancelCode as EngineCancelCode,
  FailureCode as EngineFailureCode,
  OrphanPolicy as EngineOrphanPolicy,
  ChildFailurePolicy as EnginePolicy,
  WakeSource as EngineWakeSource,
  Timeouts,
} from '../engine/job.ts'
import type { JobOrder } from '../engine/reads/job-page.ts'
import type { JobState as EngineJobState, Phase as EnginePhase } from '../engine/states.ts'
import type { Role as ViewerRole } from '../resolvers/viewer.ts'
import { builder } from './builder.ts'

/** An enum whose stored values are its names in lower case; each value with its description. */
function lowerCaseEnum<Stored extends string>(
  name: string,
  description: string,
  values: Record<Uppercase<Stored>, string>,
) {
  return builder.enumType(name, {
    description,
    values: Object.fromEntries(
      Object.entries<string>(values).map(([value, text]) => [
        value,
        { value: value.toLowerCase() as Stored, description: text },
      ]),
    ),
  })
}

/** An enum whose stored values are its names. */
function sameEnum<Stored extends string>(name: string, description: string, values: Record<Stored, string>) {
  return builder.enumType(name, {
    description,
    values: Object.fromEntries(
      Object.entries<string>(values).map(([value, text]) => [value, { value: value as Stored, description: text }]),
    ),
  })
}

export const JobState = lowerCaseEnum<EngineJobState>('JobState', 'Where a job is in its life.', {
  QUEUED: 'May be claimed once runAt has come.',
  RUNNING: 'A worker holds it.',
  WAITING: 'A parent without a slot, waiting for its children.',
  PAUSED: 'Set aside by hand.',
  COMPLETED: 'Terminal: it has its result.',
  FAILED: 'Terminal: it has its error.',
  CANCELLED: 'Terminal: stopped from outside, see cancelCode.',
})

export const Phase = lowerCaseEnum<EnginePhase>('Phase', 'Which of its handlers a job runs next, or ran last.', {
  INGEST: 'The first phase; may spawn children.',
  AGGREGATE: 'After a wake; reads the children.',
})

export const ChildFailurePolicy = lowerCaseEnum<EnginePolicy>(
  'ChildFailurePolicy',
  "What a child's FAILED state does to its parent.",
  {
    CONTINUE: 'Counts as settled and as failed; the parent is woken when all are settled.',
    FAIL_PARENT: 'The parent fails at once.',
    IGNORE: 'As CONTINUE, but not counted against failureTolerance.',
  },
)

export const OrphanPolicy = lowerCaseEnum<EngineOrphanPolicy>(
  'OrphanPolicy',
  'What becomes of active children when their parent ends.',
  {
    CANCEL: 'They are cancelled with it.',
    KEEP: 'They go on.',
  },
)

export const WaitTimeoutAction = lowerCaseEnum<NonNullable<Timeouts['onWaitTimeout']>>(
  'WaitTimeoutAction',
  'What happens when a parent has waited for longer than timeouts.wait.',
  {
    FAIL: 'It fails, without retry.',
    AGGREGATE: 'It aggregates with what there is.',
  },
)

export const FailureCode = sameEnum<EngineFailureCode>(
  'FailureCode',
  "Kind of error that a job's attempt ended with.",
  {
    AI_FAILURE: 'A model or its provider failed. Retryable.',
    NETWORK: 'Connection trouble. Retryable.',
    TIMEOUT: 'A phase or an outside call took too long. Retryable; a wait timeout is not.',
    DATABASE: 'A database said no. Retryable.',
    RATE_LIMITED: 'Asked to slow down. Retryable.',
    VALIDATION: 'Bad input. Permanent.',
    NOT_FOUND: 'Something needed is not there. Permanent.',
    PARSE: 'Something could not be read. Permanent.',
    LEASE_LOST: 'The worker vanished. Retryable.',
    CHILD_FAILED: "A child's failure was not borne (FAIL_PARENT or failureTolerance). Permanent.",
    UNKNOWN: 'None of these. Retryable unless the type says otherwise.',
  },
)

export const CancelCode = lowerCaseEnum<EngineCancelCode>('CancelCode', 'Why a job was cancelled.', {
  PARENT_COMPLETED: 'Its parent completed without it.',
  PARENT_FAILED: 'Its parent failed.',
  PARENT_CANCELLED: 'Its parent was cancelled.',
  PARENT_DELETED: 'Its parent was deleted.',
  REQUESTED: 'Someone asked.',
  TIMEOUT: 'It took too long.',
  ARCHIVED: 'It was archived while it was active.',
})

export const WakeSource = lowerCaseEnum<EngineWakeSource>(
  'WakeSource',
  "Who noticed that a parent's children are all settled.",
  {
    EDGE: 'The transaction that settled the last one.',
    RECONCILER: 'The parent-wake reconciler.',
    MANUAL: 'A person, by rewakeParent.',
    TIMEOUT: 'Nobody: it had waited for longer than timeouts.wait, and aggregates with what there is.',
  },
)

export const ExplainReason = lowerCaseEnum<EngineExplainReason>(
  'ExplainReason',
  'Why a job is not moving, or what it does instead.',
  {
    RUNNING: 'It runs.',
    FINISHED: 'It is terminal.',
    IN_LINE: 'It may be claimed at any moment; others are before it.',
    SCHEDULED: "runAt lies ahead: a delay, a snooze or a retry's backoff.",
    NO_WORKER: 'No live worker knows its type or serves its queue.',
    CONCURRENCY_LIMIT: 'Its type or key is at its concurrency limit.',
    ASSIGNEE_NOT_ACTIVE: 'Its assignee is not ACTIVE, or is unknown.',
    PAUSED: 'It is paused.',
    PAUSED_ANCESTOR: 'It can move, but an ancestor is paused, so nothing will follow.',
    OPEN_CHILDREN: 'A parent with children that are not terminal.',
    WAKE_DUE: 'A parent whose wake is due: the next reconciler tick delivers it.',
    WAKE_WITHHELD: 'A parent whose wake will not come by itself: ephemeral, archived, or to fail by a child.',
    ORPHANED: 'An active job whose parent is gone or terminal: the next sweep cancels it.',
  },
)

export const AssigneeStatus = lowerCaseEnum<EngineAssigneeStatus>(
  'AssigneeStatus',
  'Whether someone or something is able to act. Only ACTIVE lets its jobs be claimed and woken.',
  {
    ACTIVE: 'Able to act.',
    PAUSED: 'Resting.',
    STOPPED: 'Gone.',
    PENDING_APPROVAL: 'Not yet allowed.',
  },
)

export const JobEventKind = lowerCaseEnum<EngineJobEventKind>('JobEventKind', 'What an event tells.', {
  CREATED: 'The job was enqueued or spawned; `from` is null.',
  MOVED: 'It went from one state to another.',
  PROGRESS: 'Its progress changed; at most one a second per job, first and last always.',
  ARCHIVED: 'It was archived; state unchanged.',
  UNARCHIVED: 'It was unarchived; state unchanged.',
  DELETED: 'Its row was deleted; `to` is null.',
})

export const EndReason = lowerCaseEnum<FeedEnd>(
  'EndReason',
  "Why a stream ended. A later request with the same frame's cursor goes on where it stopped, except after CURSOR_EXPIRED.",
  {
    SLOW_CONSUMER: 'The client reads too slowly. Go on from `cursor`.',
    CURSOR_EXPIRED:
      '`after` is older than retention or from another database. Read afresh; `cursor` is the present end of the log.',
    SHUTDOWN:
      'The server stops. Go on from `cursor`, on any process; on WebSocket, close code 1012 follows instead of Complete.',
  },
)

/** Codes of errors; those that no resolver gives yet come with the verbs that give them. */
export type ErrorCodeName =
  | 'VALIDATION'
  | 'NOT_FOUND'
  | 'INVALID_STATE'
  | 'PARENT_GONE'
  | 'CHILDREN_OPEN'
  | 'ALREADY_DELIVERED'
  | 'ASSIGNEE_NOT_ACTIVE'
  | 'UNAUTHENTICATED'
  | 'FORBIDDEN'
  | 'BAD_REQUEST'
  | 'LIMIT_EXCEEDED'
  | 'UNAVAILABLE'
  | 'INTERNAL'

export const ErrorCode = sameEnum<ErrorCodeName>(
  'ErrorCode',
  'Codes of typed errors (`Error.code`) and of top-level errors (`extensions.code`).',
  {
    VALIDATION: 'Typed: ValidationError.',
    NOT_FOUND: 'Typed: NotFoundError.',
    INVALID_STATE: 'Typed: InvalidStateError.',
    PARENT_GONE: 'Typed: ParentGoneError.',
    CHILDREN_OPEN: 'Typed: ChildrenOpenError.',
    ALREADY_DELIVERED: 'Typed: AlreadyDeliveredError.',
    ASSIGNEE_NOT_ACTIVE: 'Typed: AssigneeNotActiveError.',
    UNAUTHENTICATED: 'Top level: no valid key or token.',
    FORBIDDEN: 'Top level: the role does not allow it.',
    BAD_REQUEST: 'Top level: the document, a variable, an id, a cursor or a page size makes no sense.',
    LIMIT_EXCEEDED: 'Top level: cost, depth, aliases, tokens, size, rate or time.',
    UNAVAILABLE: 'Top level: the database cannot be reached. Try again.',
    INTERNAL: 'Top level: a fault of ours; extensions.errorId finds it in the log.',
  },
)

export const Role = lowerCaseEnum<ViewerRole>('Role', 'What a caller may do; each includes the one before.', {
  VIEWER: 'Reads and subscribes.',
  OPERATOR: 'Enqueues and steers single jobs.',
  ADMIN: 'Deletes, forces, steers in bulk, sets assignees.',
})

export const JobOrderField = lowerCaseEnum<JobOrder['field']>(
  'JobOrderField',
  'Which instant a list of jobs is ordered by; ties by id.',
  {
    CREATED_AT: 'When it was enqueued.',
    UPDATED_AT: 'When it last changed.',
  },
)

export const OrderDirection = lowerCaseEnum<JobOrder['direction']>('OrderDirection', 'Direction of an order.', {
  ASC: 'Oldest first.',
  DESC: 'Newest first.',
})

export const RetryChildren = lowerCaseEnum<'reopen' | 'none'>(
  'RetryChildren',
  'What a retry does with children that were cancelled with their parent.',
  {
    REOPEN: 'They are reopened, and waited for.',
    NONE: 'They stay as they are: the parent aggregates what there is.',
  },
)
