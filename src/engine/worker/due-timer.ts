/** Most moments remembered. Later ones beyond that are found by polling. */
const MAX_MOMENTS = 1000
/** Longest that setTimeout takes. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1

/** Calls `due` at each of the moments added. */
export class DueTimer {
  readonly #due: () => void
  /** On the monotonic clock, soonest first. */
  #moments: number[] = []
  #timer: NodeJS.Timeout | undefined

  constructor(due: () => void) {
    this.#due = due
  }

  /** Adds the moment `delayMs` from now. */
  add(delayMs: number): void {
    // A little late rather than early: a claim that comes a moment too soon finds nothing.
    const at = performance.now() + Math.max(0, delayMs) + 2
    const index = this.#moments.findIndex((other) => other > at)
    if (index === -1) this.#moments.push(at)
    else this.#moments.splice(index, 0, at)
    this.#moments.length = Math.min(this.#moments.length, MAX_MOMENTS)
    if (this.#moments[0] === at) this.#arm()
  }

  stop(): void {
    clearTimeout(this.#timer)
    this.#moments = []
  }

  #arm(): void {
    clearTimeout(this.#timer)
    const next = this.#moments[0]
    if (next === undefined) return
    this.#timer = setTimeout(() => this.#fire(), Math.min(Math.max(0, next - performance.now()), MAX_TIMEOUT_MS))
  }

  #fire(): void {
    const now = performance.now()
    const waiting = this.#moments.filter((at) => at > now)
    const came = waiting.length < this.#moments.length
    this.#moments = waiting
    this.#arm()
    if (came) this.#due()
  }
}
