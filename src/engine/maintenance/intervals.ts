import { parseDuration } from '../duration.ts'
import type { InputIssue } from '../errors.ts'

/** The handlers of the maintenance loop, by name. */
export const HANDLER_NAMES = [
  'lease-recovery',
  'attempt-timeouts',
  'wait-timeouts',
  'parent-wakes',
  'failing-parents',
  'dead-workers',
  'orphan-sweep',
  'job-retention',
  'event-retention',
] as const
export type HandlerName = (typeof HANDLER_NAMES)[number]

/** Time between the runs of a handler, over all processes; those left out have their own. */
export type IntervalOptions = Partial<Record<HandlerName, number | string>>

/** Shortest interval that is taken, in ms. */
export const LEAST_INTERVAL_MS = 10

/** The intervals in ms; notes what is wrong with them. */
export function intervalsOf(given: IntervalOptions, issues: InputIssue[]): Partial<Record<HandlerName, number>> {
  const intervals: Partial<Record<HandlerName, number>> = {}
  for (const [name, value] of Object.entries(given)) {
    const path = ['maintenance', 'intervals', name]
    if (!(HANDLER_NAMES as readonly string[]).includes(name)) {
      issues.push({ path, message: `is not a handler: expected one of ${HANDLER_NAMES.join(', ')}` })
      continue
    }
    try {
      const ms = parseDuration(value as number | string)
      if (ms < LEAST_INTERVAL_MS) throw new RangeError(`must be at least ${LEAST_INTERVAL_MS} ms`)
      intervals[name as HandlerName] = ms
    } catch (error) {
      issues.push({ path, message: (error as Error).message })
    }
  }
  return intervals
}
