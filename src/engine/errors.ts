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

  constructor(id: string, what = 'job') {
    super(`There is no ${what} ${id}.`)
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

/** No children can be added: the parent is deleted or terminal. */
export class ParentGoneError extends EngineError {
  readonly code = 'PARENT_GONE'
  readonly parentId: string

  constructor(parentId: string, why = 'deleted or terminal') {
    super(`Parent JB_${parentId} is gone (${why}): no children can be added.`)
    this.parentId = parentId
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
