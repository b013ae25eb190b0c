import { FAILURE_CODES, type FailureCode } from '../job.ts'
import { BY_ERROR_CODE, BY_ERROR_NAME, codeOfHttpStatus, codeOfSqlState, isRetryableCode } from './classify-codes.ts'
import { errorChain, propertyOf } from './error-chain.ts'
import { VERDICT } from './handler-errors.ts'

/**
 * A job type's own say on which errors are worth another attempt; undefined leaves it to the code. It is not asked about
 * {@link RetryableError}, {@link PermanentError} and {@link SnoozeError}.
 */
export type IsRetryable = (error: unknown, code: FailureCode) => boolean | undefined

/** What an error means for its job. */
export interface Classified {
  verdict: 'retry' | 'fail' | 'snooze'
  code: FailureCode
  /** Milliseconds until the next attempt, where the error says so. */
  delayMs?: number
  /** What was being done, where the error says so. */
  operation?: string
}

/**
 * Classifies whatever a handler threw: by the class of the error or of one of its causes, by `code`, HTTP status and
 * `name` of the error and of its causes, and by the job type's `isRetryable`. Never by words in a message.
 */
export function classify(error: unknown, isRetryable?: IsRetryable): Classified {
  const chain = errorChain(error)
  const code = firstOf(chain, codeOf) ?? 'UNKNOWN'
  const operation = firstOf(chain, (link) => textOf(link, 'operation'))
  const asked = chain.find((link) => propertyOf(link, VERDICT) !== undefined)
  const verdict = asked === undefined ? undefined : propertyOf(asked, VERDICT)
  const common = { code, ...(operation !== undefined && { operation }) }
  if (verdict === 'retry' || verdict === 'snooze') {
    const delayMs = propertyOf(asked, 'delayMs')
    return { verdict, ...common, ...(typeof delayMs === 'number' && { delayMs }) }
  }
  if (verdict === 'fail') return { verdict, ...common }
  const retryable = ask(isRetryable, error, code) ?? isRetryableCode(code)
  return { verdict: retryable ? 'retry' : 'fail', ...common }
}

function ask(isRetryable: IsRetryable | undefined, error: unknown, code: FailureCode): boolean | undefined {
  try {
    return isRetryable?.(error, code)
  } catch {
    // A predicate that cannot cope with this error has no say on it.
    return undefined
  }
}

function firstOf<T>(chain: readonly unknown[], pick: (link: unknown) => T | undefined): T | undefined {
  for (const link of chain) {
    const found = pick(link)
    if (found !== undefined) return found
  }
  return undefined
}

/** The code that one error of a chain gives by itself. */
function codeOf(error: unknown): FailureCode | undefined {
  const code = textOf(error, 'code')
  if (code !== undefined) {
    if ((FAILURE_CODES as readonly string[]).includes(code)) return code as FailureCode
    if (isSqlState(error, code)) return codeOfSqlState(code)
    const known = BY_ERROR_CODE.get(code)
    if (known) return known
  }
  const name = textOf(error, 'name') ?? ''
  const status = httpStatusOf(error)
  const byStatus = status === undefined ? undefined : codeOfHttpStatus(status)
  // The errors of the `ai` package: `AI_APICallError` and so on.
  if (name.startsWith('AI_') && (byStatus === undefined || byStatus === 'NETWORK')) return 'AI_FAILURE'
  return byStatus ?? BY_ERROR_NAME.get(name) ?? (hasIssues(error) ? 'VALIDATION' : undefined)
}

// Drivers of PostgreSQL put the server's `severity` beside the SQLSTATE; EPIPE and its like have five letters too.
function isSqlState(error: unknown, code: string): boolean {
  return /^[0-9A-Z]{5}$/.test(code) && textOf(error, 'severity') !== undefined
}

function httpStatusOf(error: unknown): number | undefined {
  for (const holder of [error, propertyOf(error, 'response')]) {
    for (const name of ['status', 'statusCode']) {
      const status = propertyOf(holder, name)
      if (typeof status === 'number' && Number.isInteger(status) && status >= 400 && status <= 599) return status
    }
  }
  return undefined
}

// The failure of any Standard Schema.
function hasIssues(error: unknown): boolean {
  const issues = propertyOf(error, 'issues')
  return (
    Array.isArray(issues) &&
    issues.length > 0 &&
    issues.every((issue) => typeof propertyOf(issue, 'message') === 'string')
  )
}

function textOf(error: unknown, name: string): string | undefined {
  const value = propertyOf(error, name)
  return typeof value === 'string' && value !== '' ? value : undefined
}
