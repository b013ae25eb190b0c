import { parse as parseConnectionString } from 'pg-connection-string'
import { z } from 'zod'
import { parseDuration } from '../engine/duration.ts'

/** Anything but nothing. */
export const text = z.string().trim().min(1)

/** A PostgreSQL server's URL. */
export const postgresUrl = text.regex(/^postgres(ql)?:\/\//).refine((value) => {
  try {
    parseConnectionString(value)
    return true
  } catch {
    return false
  }
})

/** A whole number between two, both allowed. */
export const integer = (min: number, max: number) =>
  text
    .regex(/^\d{1,9}$/)
    .transform(Number)
    .pipe(z.number().min(min).max(max))

/** A length of time in milliseconds between two, both allowed. */
export const duration = (minMs: number, maxMs: number) =>
  text
    .transform((value, context) => {
      try {
        return parseDuration(value)
      } catch {
        context.addIssue('not a duration')
        return z.NEVER
      }
    })
    .pipe(z.number().min(minMs).max(maxMs))

/** A switch. */
export const yesOrNo = z.stringbool({ truthy: ['true', '1', 'yes', 'on'], falsy: ['false', '0', 'no', 'off'] })
