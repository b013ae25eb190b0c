import type { AssigneeStatus } from './assignee.ts'
import type { WakeReceipt } from './reads/receipts.ts'

/**
 * Every error that the engine throws on purpose. `code` is literal and stable: programs match on it, the API maps it.
 */
export abstract class EngineError extends Error {
  abstract readonly code: string

  constructor(message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = new.target.name
  }
}

/** One thing wrong with some input: where, from the input down, and what. */
export interface InputIssue {
  path: string[]
  message: string
}

/** Something in the input is wrong; nothing was done. */
export class ValidationError extends EngineError {
  readonly code = 'VALIDATION'
  readonly issues: InputIssue[]

  constructor(issues: InputIssue[]) {
    super(issues.map((issue) => (issue.path.length > 0 ? `${issue.path.join('.')}: ` : '') + issue.message).join('; '))
    this.issues = issues
  }

  /** One issue at one place (`a.b` is a path of two). */
  static of(path: string, message: string): ValidationError {
    return new ValidationError([{ path: path === '' ? [] : path.split('.'), message }])
  }
}

/** There is no such thing. */
export class NotFoundError extends EngineError {
  readonly code = 'NOT_FOUND'
  /** As it was asked for. */
  readonly id: string

  constructor(id: string) {
    super(`There is no job ${id.startsWith('JB_') ? id : `JB_${id}`}.`)
    this.id = id
  }
}

/** The job's state does not allow this, or no longer does. */
export class InvalidStateError extends EngineError {
  readonly code = 'INVALID_STATE'
  readonly jobId: string
  readonly state: string

  constructor(jobId: string, state: string, verb: string) {
    super(`Job JB_${jobId} is ${state}: it cannot be ${verb}.`)
    this.jobId = jobId
    this.state = state
  }
}

/** Plain SQL has made the job an ancestor of itself: nothing can be done to its subtree, which has no end. */
export class JobCycleError extends EngineError {
  readonly code = 'JOB_CYCLE'
  readonly jobId: string

  constructor(jobId: string) {
    super(`Job JB_${jobId} is its own ancestor: set parent_id right before anything is done to its subtree.`)
    this.jobId = jobId
  }
}

/** The parent is deleted or terminal: it takes no children, new or opened again. */
export class ParentGoneError extends EngineError {
  readonly code = 'PARENT_GONE'
  readonly parentId: string

  constructor(parentId: string, why = 'deleted or terminal', so = 'no children can be added') {
    super(`Parent JB_${parentId} is gone (${why}): ${so}.`)
    this.parentId = parentId
  }
}

/** The parent's children are not all settled: `force` wakes it with what there is. */
export class ChildrenOpenError extends EngineError {
  readonly code = 'CHILDREN_OPEN'
  readonly parentId: string
  readonly openChildren: number
  /** The first of them, 20 at most. */
  readonly childIds: readonly string[]

  constructor(parentId: string, openChildren: number, childIds: readonly string[]) {
    const first = childIds.slice(0, 3).map((id) => `JB_${id}`)
    const named = openChildren > first.length ? [...first, '…'] : first
    super(
      `Job JB_${parentId} has ${openChildren} open ${openChildren === 1 ? 'child' : 'children'}: ${named.join(', ')}.`,
    )
    this.parentId = parentId
    this.openChildren = openChildren
    this.childIds = childIds
  }
}

/** The parent was woken and is on its way to aggregate, or at it. */
export class AlreadyDeliveredError extends EngineError {
  readonly code = 'ALREADY_DELIVERED'
  readonly parentId: string
  readonly receipt: WakeReceipt

  constructor(receipt: WakeReceipt, state: string) {
    const { parentId, wave } = receipt
    super(`Job JB_${parentId} was woken for wave ${wave} and is ${state} in AGGREGATE: there is nothing to wake.`)
    this.parentId = parentId
    this.receipt = receipt
  }
}

/** The job's assignee is not active, or there is none of that id; `force` does not help. */
export class AssigneeNotActiveError extends EngineError {
  readonly code = 'ASSIGNEE_NOT_ACTIVE'
  readonly jobId: string
  readonly assigneeId: string
  /** Null: there is no such assignee. */
  readonly status: AssigneeStatus | null

  constructor(jobId: string, assigneeId: string, status: AssigneeStatus | null) {
    super(`Job JB_${jobId} is withheld: its assignee AS_${assigneeId} is ${status ?? 'unknown'}.`)
    this.jobId = jobId
    this.assigneeId = assigneeId
    this.status = status
  }
}

/** This attempt no longer holds its job: what it wants to write is refused. */
export class LeaseLostError extends EngineError {
  readonly code = 'LEASE_LOST'
  readonly jobId: string

  constructor(jobId: string) {
    super(`This attempt no longer holds job JB_${jobId}.`)
    this.jobId = jobId
  }
}

/** `waitFor` gave up. */
export class WaitTimeoutError extends EngineError {
  readonly code = 'WAIT_TIMEOUT'
  readonly jobId: string

  constructor(jobId: string, timeoutMs: number) {
    super(`Job JB_${jobId} did not end within ${timeoutMs} ms.`)
    this.jobId = jobId
  }
}

/** The database cannot be reached; what was asked may be asked again. */
export class UnavailableError extends EngineError {
  readonly code = 'UNAVAILABLE'
}

/** A cursor is older than retention, or from another database: read afresh. */
export class CursorExpiredError extends EngineError {
  readonly code = 'CURSOR_EXPIRED'
}

/** A cursor that no Coppice has made. */
export class InvalidCursorError extends EngineError {
  readonly code = 'BAD_REQUEST'
}
