import type { AnyContract, PayloadInput } from '../engine/definition/contract.ts'
import type { SchemaInput } from '../engine/definition/standard-schema.ts'
import type { CancelCode, FailureCode, Json } from '../engine/job.ts'
import type { ActiveState } from '../engine/states.ts'

/** What a contract's result is when it is returned. */
type ResultInput<C> = C extends { readonly result: infer R } ? SchemaInput<R, Json> : Json

/** How a given child stands. */
type Standing<Result> =
  | { state: 'completed'; result: Result }
  | { state: 'failed'; error?: { message: string; code?: FailureCode } }
  | { state: 'cancelled'; cancelCode?: CancelCode; cancelReason?: string }
  | { state: ActiveState }

/** A child that a phase is to find: what it came to, or where it is. */
export type GivenChild = {
  type: string
  key?: string
  /** Default `{}`. */
  payload?: unknown
  /** The wave of its parent that it was spawned for; default the one just settled. */
  wave?: number
} & Standing<unknown>

/** A child of a contract's type. */
export type GivenChildOf<C> = {
  key?: string
  payload?: PayloadInput<C>
  wave?: number
} & Standing<ResultInput<C>>

/**
 * A child for {@link runPhase} by its contract, with payload and result typed.
 *
 * @example
 * const children = [givenChild(digestFile, { state: 'completed', result: { sha256: '…', bytes: 3 } })]
 */
export function givenChild<C extends AnyContract>(contract: C, child: GivenChildOf<C>): GivenChild {
  return { ...child, type: contract.type } as GivenChild
}
