import pg from 'pg'

/*
 * PostgreSQL's timestamps go from `-infinity` over years that no Date and no RFC 3339 text can hold to `infinity`; plain
 * SQL may set any of them. All rows that come out of a pool of ours are read by this: what lies outside of the years 1 to
 * 9999 is the first or last instant of these.
 */

/** What `-infinity` and anything before the year 1 is read as. */
export const FIRST_INSTANT = new Date('0001-01-01T00:00:00.000Z')

/** What `infinity` and anything behind the year 9999 is read as. */
export const LAST_INSTANT = new Date('9999-12-31T23:59:59.999Z')

/** An instant some milliseconds after another, or the last one there is. */
export function later(at: Date, ms: number): Date {
  return new Date(Math.min(at.getTime() + ms, LAST_INSTANT.getTime()))
}

const parse = pg.types.getTypeParser(pg.types.builtins.TIMESTAMPTZ, 'text') as (text: string) => Date | number

/** A timestamptz as PostgreSQL writes it, as a Date that has an RFC 3339 text. */
export function instantOf(text: string): Date {
  const parsed = parse(text)
  const ms = typeof parsed === 'number' ? parsed : parsed.getTime()
  if (ms >= FIRST_INSTANT.getTime() && ms <= LAST_INSTANT.getTime()) return parsed as Date
  const first = ms < FIRST_INSTANT.getTime() || text.endsWith('BC')
  return new Date(first ? FIRST_INSTANT : LAST_INSTANT)
}

/** How rows of a pool are parsed: as by node-postgres, but for timestamps. */
export const typeParsers: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') =>
    oid === pg.types.builtins.TIMESTAMPTZ && format !== 'binary'
      ? instantOf
      : pg.types.getTypeParser(oid, format as 'text')) as typeof pg.types.getTypeParser,
}
