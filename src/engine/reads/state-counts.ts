import { isTerminal, JOB_STATES, type JobState } from '../states.ts'

/** Number of jobs by state. */
export type StateCounts = Record<JobState, number> & {
  total: number
  /** Not terminal. */
  open: number
}

/** The sums of `(state, count)` rows. */
export function stateCounts(rows: Iterable<{ state: string; count: number }>): StateCounts {
  const counts = Object.fromEntries(JOB_STATES.map((state) => [state, 0])) as StateCounts
  counts.total = 0
  counts.open = 0
  for (const { state, count } of rows) {
    counts[state as JobState] += count
    counts.total += count
    if (!isTerminal(state as JobState)) counts.open += count
  }
  return counts
}
