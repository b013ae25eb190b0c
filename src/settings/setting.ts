import type { z } from 'zod'

/** One setting of a program: how it is given, what it means and how its text is read. */
export interface Setting<T = unknown> {
  /** Its name in {@link Config}. */
  readonly name: string
  /** Environment variable. */
  readonly env: string
  /** Long flag of the command line; goes before the variable. */
  readonly flag: `--${string}`
  /** What stands for its value in help, such as `PORT`; absent for a flag without a value. */
  readonly placeholder?: string
  readonly description: string
  /** What a value has to be, in words, for error messages. */
  readonly expected: string
  /** Text that is read when nothing is given; absent, the setting is then undefined. */
  readonly default?: string
  /** Its value is for nobody's eyes: error messages and logs leave it out. */
  readonly secret?: true
  /** From text to value. */
  readonly parser: z.ZodType<T, string | undefined>
}

/** A setting that was given wrongly. */
export interface ConfigIssue {
  /** The flag or variable that it was given by. */
  readonly source: string
  /** What was given, with passwords hidden. */
  readonly given: string
  /** What was expected, in words. */
  readonly expected: string
}
