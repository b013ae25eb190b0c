import type { Tx } from '../../db/transaction.ts'
import { type KeyPage, type KeyPosition, lockKeys } from './limited-keys.ts'

const START: KeyPosition = { ordinal: 1, key: null }

/**
 * The concurrency limits that a worker claims by, and how far its rounds over the keys have come. A claim looks at so
 * many keys and the next one goes on from there, so that each key has its turn, whatever number of keys is in front.
 */
export class ClaimLimits {
  readonly #limits: readonly (readonly [type: string, slots: number])[]
  #position = START
  /** The round under way may have passed a key too early: another one is due after it. */
  #again = false
  #contended = false

  constructor(limits: ReadonlyMap<string, number>) {
    this.#limits = [...limits]
  }

  has(type: string): boolean {
    return this.#limits.some(([limited]) => limited === type)
  }

  /** Whether there is more to look at than the claims since the last news have seen, so that one should follow soon. */
  get unfinished(): boolean {
    return this.#contended || this.#again || this.#position !== START
  }

  /** Something happened: keys that this round has passed may have free slots, or jobs, by now. */
  news(): void {
    if (this.#position !== START) this.#again = true
  }

  /** Takes the locks of the next keys that have slots free; see {@link lockKeys}. */
  lockKeys(tx: Tx): Promise<KeyPage> {
    return lockKeys(tx, this.#limits, this.#position)
  }

  /** The claim that looked at these keys was committed; `filled`: it brought as many jobs as it could take. */
  advance({ next, contended }: KeyPage, filled: boolean): void {
    if (this.#position === START) this.#again = false
    // What it could not take of these keys is not to wait for news.
    if (filled && next !== null) this.#again = true
    this.#contended = contended
    this.#position = next ?? START
  }
}
