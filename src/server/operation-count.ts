import type { OperationTypeNode } from 'graphql'
import { LimitExceededError, type Limits } from './limits.ts'

/** Operations under way on one socket, by id, as graphql-ws keeps them. */
export type Running = Readonly<Record<string, unknown>>

/** Counts the operations of one socket by kind. */
export class OperationCount {
  readonly #limits: Pick<Limits, 'maxOperations' | 'maxSubscriptions'>
  /** Ids of operations that were let pass. */
  readonly #admitted = { operations: new Set<string>(), subscriptions: new Set<string>() }

  constructor(limits: Pick<Limits, 'maxOperations' | 'maxSubscriptions'>) {
    this.#limits = limits
  }

  /**
   * Lets an operation pass of which nothing is known yet but that it came, so that a flood is not even read.
   *
   * @throws {LimitExceededError}
   */
  admitAny(running: Running): void {
    const { maxOperations, maxSubscriptions } = this.#limits
    if (Object.keys(running).length > maxOperations + maxSubscriptions) throw tooMany('operations', maxOperations)
  }

  /**
   * Lets an operation pass whose kind is known.
   *
   * @throws {LimitExceededError}
   */
  admit(id: string, kind: OperationTypeNode, running: Running): void {
    const { maxOperations, maxSubscriptions } = this.#limits
    const limit = kind === 'subscription' ? 'subscriptions' : 'operations'
    const admitted = this.#admitted[limit]
    for (const all of Object.values(this.#admitted)) {
      // Those that have ended are no longer there; an id may be used again for another kind.
      for (const known of all) if (known === id || !(known in running)) all.delete(known)
    }
    const most = kind === 'subscription' ? maxSubscriptions : maxOperations
    if (admitted.size >= most) throw tooMany(limit, most)
    admitted.add(id)
  }
}

function tooMany(limit: 'operations' | 'subscriptions', most: number): LimitExceededError {
  return new LimitExceededError(limit, `One connection may have ${most} ${limit} under way at once.`)
}
