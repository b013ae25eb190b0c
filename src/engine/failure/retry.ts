import { parseDuration } from '../duration.ts'
import { formatJobId } from '../ids.ts'
import type { AttemptError, Outcome } from '../job.ts'
import type { Phase } from '../states.ts'
import { type Classified, classify, type IsRetryable } from './classify.ts'
import { describeError } from './describe-error.ts'

/** How long a type's retries wait. Durations are milliseconds or text such as `'5s'`. */
export interface BackoffPolicy {
  /** Longest delay of the first retry; default 1 s. */
  initial?: number | string
  /** What each further retry multiplies it by; default 2. */
  factor?: number
  /** Longest delay of all; default 1 h. */
  cap?: number | string
}

const DEFAULT_INITIAL_MS = 1000
const DEFAULT_FACTOR = 2
const DEFAULT_CAP_MS = 60 * 60 * 1000

/**
 * Milliseconds until the next attempt: exponential with full jitter, so uniform between 0 and
 * `min(cap, initial * factor ^ retryCount)`.
 *
 * @param retryCount retries spent so far in this phase: 0 for the first retry.
 */
export function backoffDelay(
  retryCount: number,
  policy: BackoffPolicy = {},
  random: () => number = Math.random,
): number {
  const initial = policy.initial === undefined ? DEFAULT_INITIAL_MS : parseDuration(policy.initial)
  const cap = policy.cap === undefined ? DEFAULT_CAP_MS : parseDuration(policy.cap)
  const longest = Math.min(cap, initial * (policy.factor ?? DEFAULT_FACTOR) ** retryCount)
  return Math.round(longest * random())
}

/** What of a job its retries depend on. */
export interface RetryState {
  readonly type: string
  readonly phase: Phase
  readonly retryCount: number
  readonly maxRetries: number
}

/** What a type says about its retries. */
export interface RetryRules {
  readonly backoff?: BackoffPolicy | undefined
  readonly isRetryable?: IsRetryable | undefined
}

/** How an attempt that threw ends, and what its log line names. */
export interface FailedAttempt {
  outcome: Extract<Outcome, { kind: 'failed' | 'retry' | 'requeue' }>
  operation: string
  /** It would have been tried again, had retries been left. */
  exhausted: boolean
}

/** What comes of an attempt that threw `error`. */
export function failedAttempt(job: RetryState, error: unknown, rules: RetryRules = {}): FailedAttempt {
  const classified = classify(error, rules.isRetryable)
  const operation = classified.operation ?? operationOf(job)
  if (classified.verdict === 'snooze') {
    const outcome = { kind: 'requeue', delayMs: classified.delayMs ?? 0, reason: 'snoozed' } as const
    return { outcome, operation, exhausted: false }
  }
  const attemptError: AttemptError = { ...describeError(error), code: classified.code }
  return { ...retryOrFail(job, attemptError, classified, rules.backoff), operation }
}

/** Retry or failure for an error that is classified already, such as a lost lease or a passed time limit. */
export function retryOrFail(
  job: RetryState,
  error: AttemptError,
  { verdict, delayMs }: Pick<Classified, 'verdict' | 'delayMs'> = { verdict: 'retry' },
  backoff?: BackoffPolicy,
): FailedAttempt {
  const retryable = verdict === 'retry'
  const operation = operationOf(job)
  if (!retryable || job.retryCount >= job.maxRetries) {
    return { outcome: { kind: 'failed', error }, operation, exhausted: retryable }
  }
  const delay = delayMs ?? backoffDelay(job.retryCount, backoff)
  return { outcome: { kind: 'retry', error, delayMs: delay }, operation, exhausted: false }
}

/** What a job does, as log lines name it: its type and phase. */
export function operationOf(job: Pick<RetryState, 'type' | 'phase'>): string {
  return `${job.type} ${job.phase}`
}

/** Log line of a retry; `retry` is 1 for the first. */
export function retryLine(retry: number, maxRetries: number, operation: string, jobId: string): string {
  return `꩜ Retry ${retry}/${maxRetries}: ${operation} | job:${formatJobId(jobId)}`
}

/** Log line of a job whose retries are spent. */
export function exhaustedLine(maxRetries: number, operation: string, jobId: string): string {
  return `꩜ Max retries exceeded (${maxRetries}): ${operation} | job:${formatJobId(jobId)}`
}
