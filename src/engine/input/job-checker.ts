import { faultOfConcurrencyKey } from '../claim/concurrency-limit.ts'
import { parseDuration } from '../duration.ts'
import type { InputIssue } from '../errors.ts'
import { toleranceOf } from '../failure-tolerance.ts'
import type { NewJob, Timeouts } from '../job.ts'
import { toJsonText } from '../json.ts'
import { INSTANTS, isStoredInstant } from './instant.ts'
import { faultOfText, type TextLimits } from './text.ts'

const TIMEOUT_FIELDS: ReadonlySet<string> = new Set<keyof Timeouts>(['ingest', 'aggregate', 'wait', 'onWaitTimeout'])

/** Checks one job's fields and notes what is wrong with each. */
export class JobChecker {
  readonly #path: string[]
  readonly #issues: InputIssue[]

  constructor(path: string[], issues: InputIssue[]) {
    this.#path = path
    this.#issues = issues
  }

  fail(path: string[], message: string): void {
    this.#issues.push({ path: [...this.#path, ...path], message })
  }

  text(field: string, value: unknown, limits: TextLimits): string | undefined {
    const fault = faultOfText(value, limits)
    if (fault === undefined) return value as string
    this.fail([field], fault)
    return undefined
  }

  /** Refuses what has no meaning, such as a field whose name was misspelt. */
  known(path: string[], given: object, names: ReadonlySet<string>): void {
    for (const name in given) {
      if (names.has(name) || (given as Record<string, unknown>)[name] === undefined) continue
      this.fail([...path, name], `is not known: expected ${[...names].join(', ')}`)
    }
  }

  boolean(field: string, value: unknown): boolean {
    if (typeof value !== 'boolean') this.fail([field], 'must be true or false')
    return value === true
  }

  integer(field: string, value: unknown, min: number, max: number): number {
    if (Number.isInteger(value) && (value as number) >= min && (value as number) <= max) return value as number
    this.fail([field], `must be a whole number from ${min} to ${max}`)
    return 0
  }

  instant(field: string, value: unknown): Date | null {
    if (value === undefined) return null
    if (isStoredInstant(value)) return value
    this.fail([field], INSTANTS)
    return null
  }

  oneOf<T extends string>(field: string, value: T, allowed: readonly T[]): T {
    if (!allowed.includes(value)) this.fail([field], `must be one of ${allowed.join(', ')}`)
    return value
  }

  json(field: string, value: unknown): string | undefined {
    const json = toJsonText(value)
    if ('text' in json) return json.text
    this.fail([field], json.issue.message)
    return undefined
  }

  /** Null where there is none. */
  async concurrencyKey(given: string | Promise<string> | undefined): Promise<string | null> {
    if (given === undefined) return null
    try {
      const key = await given
      const fault = faultOfConcurrencyKey(key)
      if (fault === undefined) return key
      this.fail(['concurrencyKey'], fault)
    } catch (error) {
      this.fail(['concurrencyKey'], `is not to be had: ${error instanceof Error ? error.message : String(error)}`)
    }
    return null
  }

  /** `3`, `'3'` or `'10%'`, kept as it was written. */
  tolerance(field: string, value: unknown): string | null {
    if (value === undefined) return null
    const text = typeof value === 'number' || typeof value === 'string' ? String(value) : ''
    const read = toleranceOf(text)
    if (read !== null && (!read.endsWith('%') || Number(read.slice(0, -1)) <= 100)) return read
    this.fail([field], 'must be a whole number such as 3 or a share such as 10%')
    return null
  }

  timeouts(defaults: NewJob['timeouts'], own: unknown): Timeouts {
    const timeouts: Timeouts = {}
    if (own !== undefined && own !== null) {
      if (typeof own !== 'object' || Array.isArray(own)) {
        this.fail(['timeouts'], `must be an object with any of ${[...TIMEOUT_FIELDS].join(', ')}`)
        return timeouts
      }
      this.known(['timeouts'], own, TIMEOUT_FIELDS)
    }
    const given: NonNullable<NewJob['timeouts']> = { ...defaults, ...own }
    for (const name of ['ingest', 'aggregate', 'wait'] as const) {
      const value = given[name]
      if (value === undefined || value === null) continue
      try {
        timeouts[name] = parseDuration(value)
      } catch (error) {
        this.fail(['timeouts', name], error instanceof Error ? error.message : String(error))
      }
    }
    if (given.onWaitTimeout !== undefined && given.onWaitTimeout !== null) {
      timeouts.onWaitTimeout = this.oneOf('timeouts.onWaitTimeout', given.onWaitTimeout, ['fail', 'aggregate'] as const)
    }
    return timeouts
  }
}
