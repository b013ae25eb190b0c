import { z } from 'zod'
import { type InputIssue, ValidationError } from '../errors.ts'
import { INSTANTS, isStoredInstant } from './instant.ts'
import { faultOfText, type TextLimits } from './text.ts'

/**
 * The value itself, if it is what the schema says. For what comes in from outside, whatever its type promised.
 *
 * @param path where the value stands in what was given.
 * @throws {ValidationError} with everything that is wrong.
 */
export function checked<T>(schema: z.ZodType, value: T, path: readonly string[] = []): T {
  const issues = issuesOf(schema, value, path)
  if (issues.length > 0) throw new ValidationError(issues)
  return value
}

/**
 * As {@link checked} for the last argument of a verb, or the only one: an object, or nothing.
 *
 * @throws {ValidationError}
 */
export function checkedOptions<T extends object>(schema: z.ZodType, given: T | undefined): T | undefined {
  if (given === undefined) return undefined
  if (typeof given !== 'object' || given === null) throw ValidationError.of('options', 'must be an object')
  return checked(schema, given)
}

/** What is wrong with a value; empty if nothing. */
export function issuesOf(schema: z.ZodType, value: unknown, path: readonly string[] = []): InputIssue[] {
  const { error } = schema.safeParse(value)
  return (error?.issues ?? []).map((issue) => ({ path: [...path, ...issue.path.map(String)], message: issue.message }))
}

/** A value of which `faultOf` finds nothing wrong. */
export function faultless(faultOf: (value: unknown) => string | undefined): z.ZodType {
  return z.unknown().superRefine((value, context) => {
    const message = faultOf(value)
    if (message !== undefined) context.addIssue({ code: 'custom', message })
  })
}

/** A value that passes a test. */
export function such(test: (value: unknown) => boolean, message: string): z.ZodType {
  return faultless((value) => (test(value) ? undefined : message))
}

/** A text that can be stored. */
export function storedText(limits: TextLimits): z.ZodType {
  return faultless((value) => faultOfText(value, limits))
}

/** A text of any length. */
export const text = storedText({ characters: Number.POSITIVE_INFINITY, mayBeEmpty: true })

/** True or false. */
export const yesOrNo = z.boolean('must be true or false')

/** One of some words. */
export function oneOf(words: readonly string[]): z.ZodType {
  return such((value) => words.includes(value as string), `must be one of ${words.join(', ')}`)
}

/** A list. */
export function listOf(entry: z.ZodType): z.ZodType {
  return z.array(entry, 'must be a list')
}

/** An instant that can be stored. */
export const instant = such(isStoredInstant, INSTANTS)

/** A number of milliseconds. */
export const milliseconds = such(
  (value) => typeof value === 'number' && value >= 0,
  'must be a number of milliseconds, 0 or more',
)

/** An object with these fields, others let pass. */
export function fields<Shape extends z.ZodRawShape>(shape: Shape) {
  return z.looseObject(shape, 'must be an object')
}
