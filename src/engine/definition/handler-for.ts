import type { Job } from '../job.ts'
import type { AnyDefinition, Handlers } from './define-job.ts'

/**
 * The handler that an attempt runs; null: none, the job ends with the result that it has.
 *
 * A job in AGGREGATE whose type has no aggregate either ran its one handler before it waited, so that its result is
 * kept; or it was enqueued together with its children, and runs `run` now.
 */
export function handlerFor(
  job: Pick<Job, 'phase' | 'skippedIngest' | 'spawnWave'>,
  { handlers }: AnyDefinition,
): NonNullable<Handlers['run']> | null {
  if (job.phase === 'ingest') return handlers.ingest ?? handlers.run ?? null
  if (handlers.aggregate) return handlers.aggregate
  // The set it was enqueued with has label 1: with a later one, its handler has run, and spawned that.
  const hasRun = !job.skippedIngest || job.spawnWave > 1
  return hasRun ? null : (handlers.run ?? null)
}
