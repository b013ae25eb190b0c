import type { AbortCode } from './context.ts'

const WHY: Record<AbortCode, string> = {
  CANCELLED: 'The job was cancelled or deleted.',
  TIMEOUT: 'The attempt took longer than it may.',
  LEASE_LOST: 'This attempt no longer holds its job.',
  SHUTDOWN: 'The worker shuts down.',
}

/** The reason of an attempt's aborted signal. */
export class AttemptAbortedError extends Error {
  readonly code: AbortCode

  constructor(code: AbortCode) {
    super(WHY[code])
    this.name = 'AttemptAbortedError'
    this.code = code
  }
}
