import { faultOfConcurrencyKey } from './claim/concurrency-limit.ts'
import { parseDuration } from './duration.ts'
import { type InputIssue, ValidationError } from './errors.ts'
import { toleranceOf } from './failure-tolerance.ts'
import { newJobId } from './ids.ts'
import { INSTANTS, isStoredInstant } from './input/instant.ts'
import { faultOfText, KEY, NAME, type TextLimits } from './input/text.ts'
import type { ChildFailurePolicy, NewJob, OrphanPolicy, Timeouts } from './job.ts'
import { toJsonText } from './json.ts'

/** What a type that is known here says about its jobs. */
export interface KnownType {
  /** Used where the job itself says nothing. */
  readonly defaults: Omit<NewJob, 'type' | 'payload' | 'children' | 'key'>
  /** What is wrong with a payload, paths within it; empty if nothing. */
  checkPayload(payload: unknown): Promise<InputIssue[]>
  /**
   * What the type's concurrency limit counts by; only of types that have one.
   *
   * @throws whatever the type's own function throws
   */
  concurrencyKey?(payload: unknown): Promise<string>
}

/** The types known in this process. */
export interface KnownTypes {
  get(type: string): KnownType | undefined
}

/** A job that passed every check and has its id: what the insert takes. */
export interface PreparedJob {
  readonly id: string
  readonly type: string
  readonly queue: string
  readonly priority: number
  readonly runAt: Date | null
  readonly key: string | null
  /** JSON text. */
  readonly payload: string
  /** JSON text. */
  readonly metadata: string
  readonly maxRetries: number
  readonly assigneeId: string | null
  readonly ephemeral: boolean
  readonly onChildFailure: ChildFailurePolicy
  readonly failureTolerance: string | null
  readonly orphanPolicy: OrphanPolicy
  readonly timeouts: Timeouts
  readonly concurrencyKey: string | null
  /** Null: none were given. Siblings with the same type and key are one. */
  readonly children: readonly PreparedJob[] | null
}

/** What a job has that neither itself nor its type says anything of. */
export const USUAL = {
  queue: 'default',
  priority: 0,
  maxRetries: 2,
  ephemeral: false,
  onChildFailure: 'continue',
  orphanPolicy: 'cancel',
  /** Of payload, metadata and timeouts. */
  json: '{}',
} as const

/** Deepest tree that one call may enqueue. */
export const MAX_TREE_DEPTH = 50

const INT32 = 2 ** 31 - 1

const JOB_FIELDS: ReadonlySet<string> = new Set<keyof NewJob>([
  'type',
  'payload',
  'queue',
  'priority',
  'runAt',
  'key',
  'metadata',
  'maxRetries',
  'assigneeId',
  'onChildFailure',
  'failureTolerance',
  'orphanPolicy',
  'timeouts',
  'ephemeral',
  'concurrencyKey',
  'children',
])
const TIMEOUT_FIELDS: ReadonlySet<string> = new Set<keyof Timeouts>(['ingest', 'aggregate', 'wait', 'onWaitTimeout'])

/**
 * Checks jobs and their children, fills in defaults and assigns ids.
 *
 * @throws {ValidationError} with every issue found, each with its path from the list down.
 */
export async function prepareJobs(jobs: readonly NewJob[], known?: KnownTypes): Promise<PreparedJob[]> {
  if (!Array.isArray(jobs)) throw ValidationError.of('', 'must be a list of jobs')
  const issues: InputIssue[] = []
  const prepared: PreparedJob[] = []
  for (const [index, job] of jobs.entries()) {
    const one = await prepareJob(job, [String(index)], 0, known, issues)
    if (one) prepared.push(one)
  }
  if (issues.length > 0) throw new ValidationError(issues)
  return prepared
}

/** As {@link prepareJobs} for one job; paths of issues start at the job itself. */
export async function prepareOneJob(job: NewJob, known?: KnownTypes): Promise<PreparedJob> {
  const issues: InputIssue[] = []
  const prepared = await prepareJob(job, [], 0, known, issues)
  if (!prepared) throw new ValidationError(issues)
  return prepared
}

async function prepareJob(
  job: NewJob,
  path: string[],
  depth: number,
  known: KnownTypes | undefined,
  issues: InputIssue[],
): Promise<PreparedJob | undefined> {
  const before = issues.length
  const check = new Checker(path, issues)
  if (typeof job !== 'object' || job === null) {
    check.fail([], 'is not a job: expected an object with a type')
    return undefined
  }
  check.known([], job, JOB_FIELDS)
  const type = check.text('type', job.type, NAME) ?? ''
  const knownType = known?.get(type)
  const merged = withDefaults(job, knownType?.defaults)
  const payload = merged.payload ?? {}
  const payloadText = check.json('payload', payload)
  if (knownType && payloadText !== undefined) {
    for (const issue of await knownType.checkPayload(payload)) check.fail(['payload', ...issue.path], issue.message)
  }
  const result = {
    id: newJobId(),
    type,
    queue: merged.queue === undefined ? USUAL.queue : (check.text('queue', merged.queue, NAME) ?? ''),
    priority: check.integer('priority', merged.priority ?? USUAL.priority, -INT32, INT32),
    runAt: check.instant('runAt', merged.runAt),
    key: merged.key === undefined ? null : (check.text('key', merged.key, KEY) ?? null),
    payload: payloadText ?? USUAL.json,
    metadata: check.json('metadata', merged.metadata ?? {}) ?? USUAL.json,
    maxRetries: check.integer('maxRetries', merged.maxRetries ?? USUAL.maxRetries, 0, 1_000_000),
    assigneeId: merged.assigneeId === undefined ? null : (check.text('assigneeId', merged.assigneeId, NAME) ?? null),
    ephemeral: check.boolean('ephemeral', merged.ephemeral ?? USUAL.ephemeral),
    onChildFailure: check.oneOf('onChildFailure', merged.onChildFailure ?? USUAL.onChildFailure, [
      'continue',
      'fail_parent',
      'ignore',
    ] as const),
    failureTolerance: check.tolerance('failureTolerance', merged.failureTolerance),
    orphanPolicy: check.oneOf('orphanPolicy', merged.orphanPolicy ?? USUAL.orphanPolicy, ['cancel', 'keep'] as const),
    timeouts: check.timeouts(knownType?.defaults.timeouts, job.timeouts),
    concurrencyKey: await check.concurrencyKey(
      merged.concurrencyKey ?? (issues.length === before ? knownType?.concurrencyKey?.(payload) : undefined),
    ),
    children: null as PreparedJob[] | null,
  }
  if (merged.children !== undefined && merged.children !== null) {
    if (!Array.isArray(merged.children)) check.fail(['children'], 'is not a list')
    else if (depth + 1 >= MAX_TREE_DEPTH) check.fail(['children'], `is deeper than ${MAX_TREE_DEPTH} levels`)
    else {
      const children: PreparedJob[] = []
      for (const [index, child] of merged.children.entries()) {
        const one = await prepareJob(child, [...path, 'children', String(index)], depth + 1, known, issues)
        if (one) children.push(one)
      }
      result.children = [...firstOfEachKey(children).first]
    }
  }
  return issues.length === before ? result : undefined
}

/** Splits siblings into the first of each (type, key) and, for the others, which one they are the same as. */
export function firstOfEachKey(siblings: readonly PreparedJob[]): {
  first: PreparedJob[]
  sameAs: Map<PreparedJob, PreparedJob>
} {
  const byKey = new Map<string, PreparedJob>()
  const first: PreparedJob[] = []
  const sameAs = new Map<PreparedJob, PreparedJob>()
  for (const job of siblings) {
    const key = job.key === null ? undefined : JSON.stringify([job.type, job.key])
    const earlier = key === undefined ? undefined : byKey.get(key)
    if (earlier) {
      sameAs.set(job, earlier)
      continue
    }
    if (key !== undefined) byKey.set(key, job)
    first.push(job)
  }
  return { first, sameAs }
}

/** The job over the defaults of its type; what it leaves undefined, it does not say. */
function withDefaults(job: NewJob, defaults: KnownType['defaults'] | undefined): NewJob {
  if (defaults === undefined) return job
  const merged: Record<string, unknown> = { ...defaults }
  for (const [name, value] of Object.entries(job)) if (value !== undefined) merged[name] = value
  return merged as unknown as NewJob
}

/** Checks one job's fields and notes what is wrong with each. */
class Checker {
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
