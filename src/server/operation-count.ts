import type { OperationTypeNode } from 'graphql'
import { LimitExceededError, type Limits } from './limits.ts'

/** Operations under way on one socket, by id, as graphql-ws keeps them. */
export type Running = Readonly<Record<string, unknown>>

/** Counts the operations of one socket by kind. */
export class OperationCount {
  readonly #limits: Pick<Limits, 'maxOperations' | 'maxSubscriptions'>
  readonly #subscriptions = new Set<string>()

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
   * Lets an operation pass that is in `running` already.
   *
   * @throws {LimitExceededError}
   */
  admit(id: string, kind: OperationTypeNode, running: Running): void {
    for (const known of this.#subscriptions) if (!(known in running)) this.#subscriptions.delete(known)
    const { maxOperations, maxSubscriptions } = this.#limits
    if (kind === 'subscription') {
      if (this.#subscriptions.size >= maxSubscriptions) throw tooMany('subscriptions', maxSubscriptions)
      this.#subscriptions.add(id)
    } else if (Object.keys(running).length - this.#subscriptions.size > maxOperations) {
      throw tooMany('operations', maxOperations)
    }
  }
}

function tooMany(limit: 'operations' | 'subscriptions', most: number): LimitExceededError {
  return new LimitExceededError(limit, `One connection may have ${most} ${limit} under way at once.`)
}
