import { InvalidCursorError } from '../errors.ts'

/** Raised when what a cursor holds changes its meaning; older ones are then refused. */
const VERSION = 1

/** What a connection cursor holds: the place of a row in one order. */
export type CursorValue = string | number

/**
 * A connection cursor: opaque, versioned, bound to the order it was made in (`kind`), so that a cursor of one list is
 * refused by a list in another order.
 */
export function encodeCursor(kind: string, values: readonly CursorValue[]): string {
  return Buffer.from(JSON.stringify([VERSION, kind, ...values])).toString('base64url')
}

/** Checks one value of a cursor. */
export type CursorCheck = (value: unknown) => boolean

/**
 * The values of a cursor of this kind.
 *
 * @throws {InvalidCursorError} it was not made here, by another version, or in another order
 */
export function decodeCursor(kind: string, cursor: string, checks: readonly CursorCheck[]): CursorValue[] {
  let parsed: unknown
  try {
    parsed = JSON.parse(Buffer.from(cursor, 'base64url').toString())
  } catch {
    throw new InvalidCursorError(`Not a cursor: ${JSON.stringify(cursor.slice(0, 100))}.`)
  }
  if (!Array.isArray(parsed)) throw new InvalidCursorError(`Not a cursor: ${JSON.stringify(cursor.slice(0, 100))}.`)
  const [version, cursorKind, ...values] = parsed
  if (version !== VERSION) throw new InvalidCursorError('This cursor was made by another version: read afresh.')
  if (cursorKind !== kind) throw new InvalidCursorError('This cursor belongs to a list of another kind or order.')
  if (values.length !== checks.length || !values.every((value, index) => checks[index]?.(value))) {
    throw new InvalidCursorError(`Not a cursor: ${JSON.stringify(cursor.slice(0, 100))}.`)
  }
  return values
}

/** An instant as {@link placeSql} writes it. */
export function isInstant(value: unknown): boolean {
  if (value === 'infinity' || value === '-infinity') return true
  if (typeof value !== 'string') return false
  const match = /^(\d{4,6})(-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})\d{3}Z( BC)?$/.exec(value)
  if (!match) return false
  const [, yearText, rest, bc] = match
  const year = Number(yearText)
  if (year < 1 || year > (bc ? 4712 : 294_275)) return false
  // The years repeat after four hundred.
  const milliseconds = `${bc ? 2001 : 2000 + (year % 400)}${rest}Z`
  const date = new Date(milliseconds)
  return !Number.isNaN(date.getTime()) && date.toISOString() === milliseconds
}

/** A whole number that fits the database's `int`. */
export function isInt(value: unknown): boolean {
  return Number.isInteger(value) && Math.abs(value as number) < 2 ** 31
}

/** A number of an event: decimal, up to what `bigint` holds. */
export function isEventNumber(value: unknown): boolean {
  return typeof value === 'string' && /^\d{1,18}$/.test(value)
}

/** `to_char` format of instants in cursors: Dates have milliseconds, rows have microseconds. */
const INSTANT_FORMAT = `YYYY-MM-DD"T"HH24:MI:SS.US"Z"`

/**
 * The instant of a row for a cursor, as SQL: in UTC with microseconds. Texts are in the order of the instants, from
 * `-infinity` over the years 1 to 9999, which all are that no hand has set, to `infinity`.
 */
export function placeSql(column: string): string {
  const utc = `${column} at time zone 'UTC'`
  return `case when not isfinite(${column}) then ${column}::text
      when ${column} < '0001-01-01T00:00:00Z' then to_char(${utc}, '${INSTANT_FORMAT} BC')
      else to_char(${utc}, '${INSTANT_FORMAT}') end`
}
