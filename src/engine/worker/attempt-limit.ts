import type { AnyDefinition } from '../definition/define-job.ts'
import { parseDuration } from '../duration.ts'
import type { Job } from '../job.ts'

/** Where nobody says anything: a handler that hangs does not hold its tree for ever. */
export const DEFAULT_ATTEMPT_LIMIT_MS = 24 * 60 * 60 * 1000

/** How long an attempt of this job may take, in ms: what the job says, else its type, else 24 h; null: for ever. */
export function attemptLimit(job: Pick<Job, 'phase' | 'timeouts'>, { settings }: AnyDefinition): number | null {
  const ofJob = job.timeouts[job.phase]
  if (ofJob !== undefined) return ofJob
  const ofType = settings.timeouts?.[job.phase]
  if (ofType === 'none') return null
  return ofType === undefined ? DEFAULT_ATTEMPT_LIMIT_MS : parseDuration(ofType)
}
