import { JobCycleError } from './errors.ts'

/*
 * Walks from jobs down to all that is below them, level by level. A job has one parent: whoever comes round to a job again
 * has begun at one of the circle. So it is enough to look out for the jobs of the beginning.
 */

/**
 * Refuses to go on where a level has come round to a job that the walk began at, none of which is below another.
 *
 * @throws {JobCycleError}
 */
export function refuseCycle(beginning: readonly string[], level: readonly { id: string }[]): void {
  const began = new Set(beginning)
  const again = level.find((row) => began.has(row.id))
  if (again) throw new JobCycleError(again.id)
}
