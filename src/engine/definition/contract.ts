import { ValidationError } from '../errors.ts'
import { faultOfText, NAME } from '../input/text.ts'
import type { Json, NewJob } from '../job.ts'
import type { SchemaInput, SchemaOutput, SchemaSlot } from './standard-schema.ts'

/** Marks a job made by a contract, so that what comes back for it is typed. Kept by `{ ...job }`, unseen by JSON. */
export const CONTRACT: unique symbol = Symbol.for('coppice.contract') as never

/** What declares a type of job: its name, and schemas (zod, valibot, arktype…) for what it takes and gives. */
export interface ContractSource<P extends SchemaSlot, R extends SchemaSlot, S extends SchemaSlot> {
  readonly type: string
  readonly payload?: P
  readonly result?: R
  /** Of what the handler saves (`ctx.save`). */
  readonly checkpoint?: S
}

/**
 * A type of job as others see it: enough to enqueue, to spawn, and to read results by. Another process may implement it.
 */
export interface JobContract<
  P extends SchemaSlot = SchemaSlot,
  R extends SchemaSlot = SchemaSlot,
  S extends SchemaSlot = SchemaSlot,
> {
  readonly type: string
  readonly payload: P
  readonly result: R
  readonly checkpoint: S
  /** A job of this type, to be enqueued or spawned. The payload is what the schema takes. */
  with(...args: WithArguments<P>): ContractJob<R>
}

// biome-ignore lint/suspicious/noExplicitAny: stands for every contract, whatever its schemas
export type AnyContract = JobContract<any, any, any>

/** Everything that can be said of a new job besides its type and payload. */
export type JobOptions = Omit<NewJob, 'type' | 'payload'>

/** The arguments of `with`: the payload may be left out where the schema takes `{}`. */
export type WithArguments<P> =
  Record<string, never> extends SchemaInput<P, unknown>
    ? [payload?: SchemaInput<P, unknown>, options?: JobOptions]
    : [payload: SchemaInput<P, unknown>, options?: JobOptions]

/** A new job whose result is known by its contract. */
export interface ContractJob<R extends SchemaSlot = SchemaSlot> extends NewJob {
  readonly [CONTRACT]: { readonly result: R }
}

/** What a contract's payload is when it is given. */
export type PayloadInput<C> = C extends { readonly payload: infer P } ? SchemaInput<P, Json> : Json

/** What a contract's result is when it is read. */
export type ResultOutput<C> = C extends { readonly result: infer R } ? SchemaOutput<R, Json> : Json

/** The result of a new job: typed when a contract made it. */
export type ResultOf<J> = J extends { readonly [CONTRACT]: infer C } ? ResultOutput<C> : Json

/**
 * Declares a type of job without saying how it runs. Types that spawn each other, or themselves, are declared first and
 * defined after.
 *
 * @example
 * const resize = declareJob({
 *   type: 'resize',
 *   payload: z.object({ path: z.string(), width: z.number() }),
 *   result: z.object({ bytes: z.number() }),
 * })
 * await engine.enqueue(resize.with({ path: 'a.png', width: 640 }))
 * @throws {ValidationError} when the type has no name that can be stored.
 */
export function declareJob<
  P extends SchemaSlot = undefined,
  R extends SchemaSlot = undefined,
  S extends SchemaSlot = undefined,
>(source: ContractSource<P, R, S>): JobContract<P, R, S> {
  const fault = faultOfText(source?.type, NAME)
  if (fault !== undefined) throw ValidationError.of('type', fault)
  const contract = {
    type: source.type,
    payload: source.payload as P,
    result: source.result as R,
    checkpoint: source.checkpoint as S,
  }
  return {
    ...contract,
    with: (payload?: unknown, options?: JobOptions) => ({
      ...options,
      type: source.type,
      ...(payload !== undefined && { payload }),
      [CONTRACT]: contract,
    }),
  }
}
