/** The first instant that is taken: 4713 BC, in which PostgreSQL's calendar begins. Its end comes after the last Date. */
export const FIRST_INSTANT = new Date(Date.UTC(-4712, 0, 1))

/** Whether a value is a Date that the database can hold. */
export function isStoredInstant(value: unknown): value is Date {
  // An invalid Date's time is NaN, which is not greater than anything.
  return value instanceof Date && value.getTime() >= FIRST_INSTANT.getTime()
}
