/** Longest that setTimeout takes: 24.8 days. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1

/** A timer for any time, on the monotonic clock. */
export class LongTimer {
  readonly #at: number
  readonly #callback: () => void
  #timer: NodeJS.Timeout | undefined

  constructor(ms: number, callback: () => void) {
    this.#at = performance.now() + ms
    this.#callback = callback
    this.#arm()
  }

  clear(): void {
    clearTimeout(this.#timer)
  }

  #arm(): void {
    const left = this.#at - performance.now()
    this.#timer =
      left > MAX_TIMEOUT_MS
        ? setTimeout(() => this.#arm(), MAX_TIMEOUT_MS)
        : setTimeout(() => this.#callback(), Math.max(0, left))
  }
}
