import { parseDuration } from '../duration.ts'
import type { InputIssue } from '../errors.ts'

/**
 * How long to keep what is over: milliseconds or text such as `'30d'`. Absent: for ever. All engines on one database
 * should say the same.
 */
export interface RetentionOptions {
  /** A tree whose root completed, from the end of the last of its jobs. */
  completed?: number | string | undefined
  /** The same, if its root failed. */
  failed?: number | string | undefined
  /** The same, if its root was cancelled. */
  cancelled?: number | string | undefined
  /** Events; also how long a cursor of the feed can be resumed with, at least. */
  events?: number | string | undefined
}

/** Milliseconds, or null for ever. */
export interface Retention {
  completed: number | null
  failed: number | null
  cancelled: number | null
  events: number | null
}

/** Least times to keep, in ms: whoever waits for a job's end is to find it; events go by the minute. */
export const LEAST_RETENTION: Readonly<Record<keyof Retention, number>> = {
  completed: 1000,
  failed: 1000,
  cancelled: 1000,
  events: 60_000,
}

/** Checks what was given; what is wrong is added to `issues`. */
export function retentionOf(options: RetentionOptions, issues: InputIssue[]): Retention {
  const retention: Retention = { completed: null, failed: null, cancelled: null, events: null }
  for (const name of Object.keys(retention) as (keyof Retention)[]) {
    const given = options[name]
    if (given === undefined) continue
    try {
      const ms = parseDuration(given)
      if (ms < LEAST_RETENTION[name]) throw new RangeError(`must be at least ${LEAST_RETENTION[name]} ms`)
      retention[name] = ms
    } catch (error) {
      issues.push({ path: ['retention', name], message: (error as Error).message })
    }
  }
  return retention
}
