import type { MessageOf } from './messages.ts'

/** Deals with one message; settles when its operation has wound up, and never rejects. */
type Deal = () => Promise<void>

interface Waiting {
  type: 'subscribe' | 'complete'
  deal: Deal
}

/** Most messages that wait for the operation of one id to wind up. */
const MAX_WAITING = 100

/**
 * Lets a client use the id of an operation that it has completed again at once. graphql-ws takes an operation from its
 * list when that has wound up, by its id: a new one of the same id would be lost, so that it waits until then, and
 * whatever else is said of it behind it.
 */
export class OperationTurns {
  /** By the id of each operation that has not wound up: the messages that wait for that. */
  readonly #waiting = new Map<string, Waiting[]>()

  /**
   * Deals with a message when it is its turn.
   *
   * @param isRunning whether the operation of an id is under way, and nobody has asked to end it.
   * @returns false: too many wait for that id; nothing is done.
   */
  take({ type, id }: MessageOf, isRunning: (id: string) => boolean, deal: Deal): boolean {
    if (id === undefined || (type !== 'subscribe' && type !== 'complete')) {
      void deal()
      return true
    }
    const waiting = this.#waiting.get(id)
    if (!waiting) {
      if (type === 'subscribe') this.#begin(id, deal, [])
      else void deal()
    } else if (waiting.length === 0 && isRunning(id)) {
      // Ends it; or begins it twice, which is graphql-ws's to refuse.
      void deal()
    } else if (waiting.length < MAX_WAITING) waiting.push({ type, deal })
    else return false
    return true
  }

  #begin(id: string, deal: Deal, waiting: Waiting[]): void {
    this.#waiting.set(id, waiting)
    const woundUp = deal()
    while (waiting[0]?.type === 'complete') void waiting.shift()!.deal()
    void woundUp.then(() => {
      const next = waiting.shift()
      if (next) this.#begin(id, next.deal, waiting)
      else this.#waiting.delete(id)
    })
  }
}
