import { parseDuration } from '../duration.ts'
import type { FailureCode } from '../job.ts'

/**
 * What a handler asks for by the class of what it throws. A registered symbol rather than `instanceof`: a module of job
 * definitions may have been loaded with another copy of this package.
 */
export const VERDICT: unique symbol = Symbol.for('coppice.verdict') as never

/** Extras of an error thrown by a handler. */
export interface HandlerErrorOptions {
  /** Default: what `cause` is classified as, else UNKNOWN. */
  code?: FailureCode
  cause?: unknown
  /** What was being done, for the log; default the job's type and phase. */
  operation?: string
}

abstract class HandlerError extends Error {
  abstract readonly [VERDICT]: 'retry' | 'fail' | 'snooze'
  readonly code?: FailureCode
  readonly operation?: string

  constructor(message: string, options: HandlerErrorOptions = {}) {
    super(message, 'cause' in options ? { cause: options.cause } : undefined)
    this.name = new.target.name
    if (options.code !== undefined) this.code = options.code
    if (options.operation !== undefined) this.operation = options.operation
  }
}

/**
 * Thrown by a handler: try again, if retries are left.
 *
 * @example
 * throw new RetryableError('The mailbox is locked', { code: 'NETWORK', delay: '30s' })
 */
export class RetryableError extends HandlerError {
  readonly [VERDICT] = 'retry'
  /** Milliseconds until the next attempt, in place of the backoff. */
  readonly delayMs?: number

  constructor(message: string, options: HandlerErrorOptions & { delay?: number | string } = {}) {
    super(message, options)
    if (options.delay !== undefined) this.delayMs = parseDuration(options.delay)
  }
}

/** Thrown by a handler: the job has failed, whatever retries are left. */
export class PermanentError extends HandlerError {
  readonly [VERDICT] = 'fail'
}

/**
 * Thrown by a handler: not now. The job is queued again after the delay, and no retry is spent.
 *
 * @example
 * throw new SnoozeError('5m')
 */
export class SnoozeError extends HandlerError {
  readonly [VERDICT] = 'snooze'
  /** Milliseconds until the next attempt. */
  readonly delayMs: number

  constructor(delay: number | string, message = 'snoozed') {
    super(message)
    this.delayMs = parseDuration(delay)
  }
}
