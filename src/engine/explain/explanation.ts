import type { Json } from '../job.ts'

export const EXPLAIN_REASONS = [
  'running',
  'finished',
  'in_line',
  'scheduled',
  'no_worker',
  'concurrency_limit',
  'assignee_not_active',
  'paused',
  'paused_ancestor',
  'open_children',
  'wake_due',
  'wake_withheld',
  'orphaned',
] as const
/** Why a job does not move, or what it does instead. */
export type ExplainReason = (typeof EXPLAIN_REASONS)[number]

/**
 * The data behind a sentence. Ids are global (`JB_…`, `WK_…`, `AS_…`), instants ISO 8601 by the database's clock, times in
 * ms; what is not known is null. By reason (`docs/explain.md` says more of them):
 *
 * - `running`: `attempt phase worker host pid workerLost claimedAt runningMs heartbeatAt heartbeatAgeMs limitMs limitFrom
 *   endsAt pauseRequested progress archived`
 * - `finished`: `state finishedAt agoMs errorCode error cancelCode cancelReason archived`
 * - `in_line`: `type queue priority before beforeAtLeast workers slots busy concurrencyKey runningOfKey`
 * - `scheduled`: `runAt inMs why retry maxRetries error`
 * - `no_worker`: `type queue why live workers`
 * - `concurrency_limit`: `type key limit running holders`
 * - `assignee_not_active`: `assignee status since`
 * - `paused`: `since forMs by why from`
 * - `paused_ancestor`: `ancestors`
 * - `open_children`: `open openAtLeast total children leaves waitingSince waitingMs waitLimitMs waitEndsAt onWaitTimeout`
 * - `wake_due`: `total counted waitingSince waitingMs`
 * - `wake_withheld`: `why failingChild archivedAt waitingSince waitingMs`
 * - `orphaned`: `parent parentState parentEndedAt`
 */
export type ExplanationFacts = { [key: string]: Json }

/** One reason why a job does not move. */
export interface Explanation {
  reason: ExplainReason
  /** For people: names, numbers and ages filled in. */
  sentence: string
  facts: ExplanationFacts
  /** Bare ids of the jobs that it speaks of, the first {@link MAX_JOBS}. */
  jobs: string[]
  /** How many such jobs there are; of open children and of what runs under a key at least so many, from 1,000 on. */
  count: number
  /** What happens next; null: nothing will by itself. */
  next: string | null
  /** When; null: it depends on something without a date. */
  nextAt: Date | null
}

/** An explanation with what can be said of the job after "it" or "which". */
export interface Reason extends Explanation {
  clause: string
}

/** Most jobs that an explanation names by id. */
export const MAX_JOBS = 5

/** A reason whose sentence says the clause of the job itself, and perhaps `more`. */
export function reasonOf(
  given: Pick<Reason, 'reason' | 'clause' | 'facts' | 'next'> & Partial<Reason> & { more?: string },
): Reason {
  const { more, ...reason } = given
  const jobs = reason.jobs ?? []
  return {
    sentence: `It ${reason.clause}.${more ? ` ${more}` : ''}`,
    count: jobs.length,
    nextAt: null,
    ...reason,
    jobs: jobs.slice(0, MAX_JOBS),
  }
}
