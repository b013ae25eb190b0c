import { setTimeout as sleep } from 'node:timers/promises'

/**
 * A read that many ask for and that may be dear: one at a time, for all who asked before it began; after each it rests
 * for a multiple of the time it took, so that it never takes more than its share of the database.
 */
export class PacedRead<T> {
  readonly #read: () => Promise<T>
  readonly #rest: number
  #running: Promise<T> | undefined
  #next: Promise<T> | undefined
  #last: { value: T } | undefined
  #restsUntil = Number.NEGATIVE_INFINITY

  /** @param rest how many times as long as a read the pause after it is. */
  constructor(read: () => Promise<T>, rest: number) {
    this.#read = read
    this.#rest = rest
  }

  /** What a read gives that begins after this call. */
  fresh(): Promise<T> {
    this.#next ??= this.#run()
    return this.#next
  }

  /** What the last read gave, or the one that runs; another one when the pause is over. */
  async recent(): Promise<T> {
    if (this.#last !== undefined && performance.now() < this.#restsUntil) return this.#last.value
    return this.#running ?? this.fresh()
  }

  async #run(): Promise<T> {
    await this.#running?.catch(() => {})
    const pause = this.#restsUntil - performance.now()
    if (pause > 0) await sleep(pause, undefined, { ref: false })
    const begun = performance.now()
    const running = this.#read()
    this.#running = running
    this.#next = undefined
    try {
      const value = await running
      this.#last = { value }
      return value
    } finally {
      const ended = performance.now()
      this.#restsUntil = ended + (ended - begun) * this.#rest
      this.#running = undefined
    }
  }
}
