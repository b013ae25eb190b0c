import type { Logger } from 'pino'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import { exhaustedLine, type FailedAttempt, retryLine } from '../failure/retry.ts'
import { formatJobId } from '../ids.ts'

/** Tells of an attempt that failed, once that has been settled. */
export function logFailure(
  logger: Logger,
  job: Pick<ClaimedJob, 'id' | 'type' | 'phase' | 'retryCount' | 'maxRetries'>,
  { outcome, operation, exhausted }: FailedAttempt,
): void {
  if (outcome.kind === 'requeue') return
  const details = { code: outcome.error.code, error: outcome.error.message, stack: outcome.error.stack }
  if (outcome.kind === 'retry') logger.warn(details, retryLine(job.retryCount + 1, job.maxRetries, operation, job.id))
  else if (exhausted) logger.error(details, exhaustedLine(job.maxRetries, operation, job.id))
  else logger.error(details, `꩜ Failed for good: ${operation} | job:${formatJobId(job.id)}`)
}
