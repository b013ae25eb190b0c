import type { ConcurrencyLimit } from '../claim/concurrency-limit.ts'
import type { JobContext } from '../context/context.ts'
import { parseDuration } from '../duration.ts'
import { type InputIssue, ValidationError } from '../errors.ts'
import type { IsRetryable } from '../failure/classify.ts'
import { type BackoffPolicy, backoffDelay } from '../failure/retry.ts'
import type { Json } from '../job.ts'
import { type ContractSource, declareJob, type JobContract, type JobOptions } from './contract.ts'
import type { SchemaInput, SchemaOutput, SchemaSlot } from './standard-schema.ts'

/** Largest concurrency limit: what the database can count to. */
const MAX_LIMIT = 2 ** 31 - 1

const DEFINITION: unique symbol = Symbol.for('coppice.definition') as never

/** What a handler may return: what the result's schema takes; anything with a JSON form without a schema. */
type Returned<R> = SchemaInput<R, unknown> | Promise<SchemaInput<R, unknown>>
// biome-ignore lint/suspicious/noConfusingVoidType: a handler that returns nothing is one
type MaybeReturned<R> = SchemaInput<R, unknown> | void | Promise<SchemaInput<R, unknown> | void>

/** A job in one phase. If it spawns children all the same, what it returned is its result once they have settled. */
export interface OnePhase<P extends SchemaSlot, R extends SchemaSlot, S extends SchemaSlot> {
  run(ctx: JobContext<P, S>): Returned<R>
}

/** A job in two phases: it spawns children, gives its slot back, and is woken once to aggregate what they came to. */
export interface TwoPhase<P extends SchemaSlot, R extends SchemaSlot, S extends SchemaSlot> {
  /** What it returns is the result if it did not call `ctx.spawn`. */
  ingest(ctx: JobContext<P, S>): MaybeReturned<R>
  /**
   * May spawn again: then it is woken again. Otherwise what it returns is the result. A type without it ends with what
   * `ingest` returned, once the children have settled.
   */
  aggregate?(ctx: JobContext<P, S>): MaybeReturned<R>
}

/** Handlers of a definition, whichever there are. */
export interface Handlers {
  // biome-ignore lint/suspicious/noExplicitAny: handlers of every definition, whatever its schemas
  run?(ctx: JobContext<any, any>): unknown
  // biome-ignore lint/suspicious/noExplicitAny: as above
  ingest?(ctx: JobContext<any, any>): unknown
  // biome-ignore lint/suspicious/noExplicitAny: as above
  aggregate?(ctx: JobContext<any, any>): unknown
}

/** Time limits of a type. Durations are milliseconds or text such as `'5m'`. */
export interface TypeTimeouts {
  /** Of one attempt in INGEST, or of a job in one phase; default 24 h. */
  ingest?: number | string | 'none'
  /** Of one attempt in AGGREGATE; default 24 h. */
  aggregate?: number | string | 'none'
  /** Longest time in WAITING; default none. */
  wait?: number | string | 'none'
  /** What comes after `wait`: the job fails (default), or aggregates with what there is. */
  onWaitTimeout?: 'fail' | 'aggregate'
}

/** What a type says about its jobs: defaults for those enqueued where the type is known, and rules for its attempts. */
// biome-ignore lint/suspicious/noExplicitAny: settings of every definition, whatever its payload
export interface TypeSettings<Payload = any>
  extends Pick<
    JobOptions,
    'queue' | 'priority' | 'maxRetries' | 'onChildFailure' | 'failureTolerance' | 'orphanPolicy' | 'ephemeral'
  > {
  timeouts?: TypeTimeouts
  backoff?: BackoffPolicy
  isRetryable?: IsRetryable
  /** How many of its jobs may run at once, over all processes. */
  concurrency?: ConcurrencyLimit<Payload>
}

/** How a type is defined: its handlers and its settings. */
export type JobSource<P extends SchemaSlot, R extends SchemaSlot, S extends SchemaSlot> = TypeSettings<
  SchemaOutput<P, Json>
> &
  ((OnePhase<P, R, S> & { ingest?: never; aggregate?: never }) | (TwoPhase<P, R, S> & { run?: never }))

/** A type of job that this process can run. It is a contract too. */
export interface JobDefinition<
  P extends SchemaSlot = SchemaSlot,
  R extends SchemaSlot = SchemaSlot,
  S extends SchemaSlot = SchemaSlot,
> extends JobContract<P, R, S> {
  readonly handlers: Handlers
  readonly settings: TypeSettings
  readonly [DEFINITION]: true
}

// biome-ignore lint/suspicious/noExplicitAny: stands for every definition, whatever its schemas
export type AnyDefinition = JobDefinition<any, any, any>

/**
 * Defines how a type of job runs: `run` in one phase, or `ingest` and `aggregate` in two.
 *
 * @param contract from `declareJob`, or its parts in place.
 * @example
 * const digestFolderJob = defineJob(digestFolder, {
 *   timeouts: { ingest: '1m', wait: '1h' },
 *   async ingest(ctx) {
 *     await ctx.spawn((await readdir(ctx.payload.path)).map((name) => digestFile.with({ path: name }, { key: name })))
 *   },
 *   async aggregate(ctx) {
 *     let bytes = 0
 *     for await (const file of ctx.children(digestFile, { states: ['completed'] })) bytes += file.result.bytes
 *     return { bytes }
 *   },
 * })
 * @throws {ValidationError} when handlers are missing or do not go together, or a setting is malformed.
 */
export function defineJob<
  P extends SchemaSlot = undefined,
  R extends SchemaSlot = undefined,
  S extends SchemaSlot = undefined,
>(contract: ContractSource<P, R, S>, source: JobSource<P, R, S>): JobDefinition<P, R, S> {
  if (typeof source !== 'object' || source === null) throw ValidationError.of('source', 'must be an object')
  const declared = declareJob(contract)
  const { run, ingest, aggregate, ...settings } = source
  for (const [name, handler] of Object.entries({ run, ingest, aggregate })) {
    if (handler !== undefined && typeof handler !== 'function') throw ValidationError.of(name, 'must be a function')
  }
  const handlers: Handlers = {
    ...(run && { run: run.bind(source) }),
    ...(ingest && { ingest: ingest.bind(source) }),
    ...(aggregate && { aggregate: aggregate.bind(source) }),
  }
  const issues = [...issuesOfHandlers(handlers), ...issuesOfSettings(settings)]
  if (issues.length > 0) throw new ValidationError(issues.map((i) => ({ ...i, path: [contract.type, ...i.path] })))
  return { ...declared, handlers, settings, [DEFINITION]: true }
}

/** Whether something, such as what a module exports, is a definition. */
export function isJobDefinition(value: unknown): value is AnyDefinition {
  return typeof value === 'object' && value !== null && DEFINITION in value
}

function issuesOfHandlers({ run, ingest, aggregate }: Handlers): InputIssue[] {
  if (run && (ingest || aggregate)) return [{ path: [], message: 'has `run`, so neither `ingest` nor `aggregate`' }]
  if (!run && !ingest) return [{ path: [], message: 'needs `run`, or `ingest` with or without `aggregate`' }]
  return []
}

function issuesOfSettings({ timeouts = {}, backoff, concurrency }: TypeSettings): InputIssue[] {
  const issues: InputIssue[] = []
  const check = (path: string[], read: () => unknown) => {
    try {
      read()
    } catch (error) {
      issues.push({ path, message: error instanceof Error ? error.message : String(error) })
    }
  }
  for (const name of ['ingest', 'aggregate', 'wait'] as const) {
    const limit = timeouts[name]
    if (limit !== undefined && limit !== 'none') check(['timeouts', name], () => parseDuration(limit))
  }
  if (backoff) {
    check(['backoff'], () => backoffDelay(0, backoff))
    const { factor = 1 } = backoff
    if (!(factor >= 1)) issues.push({ path: ['backoff', 'factor'], message: 'must be 1 or more' })
  }
  if (concurrency) {
    const { limit, key } = concurrency
    if (!(Number.isInteger(limit) && limit >= 1 && limit <= MAX_LIMIT)) {
      issues.push({ path: ['concurrency', 'limit'], message: `must be a whole number from 1 to ${MAX_LIMIT}` })
    }
    if (key !== undefined && typeof key !== 'function') {
      issues.push({ path: ['concurrency', 'key'], message: 'must be a function of the payload' })
    }
  }
  return issues
}
