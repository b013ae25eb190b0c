import { FIRST_INSTANT, LAST_INSTANT } from '../../db/instants.ts'

/** Which instants are taken: those that can be read again as they are. */
export const INSTANTS = `must be a valid Date from ${FIRST_INSTANT.toISOString()} to ${LAST_INSTANT.toISOString()}`

/** Whether a value is a Date that the database gives back as it is. */
export function isStoredInstant(value: unknown): value is Date {
  // An invalid Date's time is NaN, which is neither greater nor less than anything.
  return value instanceof Date && value >= FIRST_INSTANT && value <= LAST_INSTANT
}
