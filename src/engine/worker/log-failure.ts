import type { Logger } from 'pino'
import { exhaustedLine, type FailedAttempt, retryLine } from '../failure/retry.ts'
import { formatJobId } from '../ids.ts'
import type { Job } from '../job.ts'

/** Tells of an attempt that failed, once that has been settled. */
export function logFailure(logger: Logger, job: Job, { outcome, operation, exhausted }: FailedAttempt): void {
  if (outcome.kind === 'requeue') return
  const details = { code: outcome.error.code, error: outcome.error.message, stack: outcome.error.stack }
  if (outcome.kind === 'retry') logger.warn(details, retryLine(job.retryCount + 1, job.maxRetries, operation, job.id))
  else if (exhausted) logger.error(details, exhaustedLine(job.maxRetries, operation, job.id))
  else logger.error(details, `꩜ Failed for good: ${operation} | job:${formatJobId(job.id)}`)
}
