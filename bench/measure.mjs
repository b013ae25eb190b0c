import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'

/** Milliseconds on the monotonic clock. */
export const now = () => performance.now()

/** Counts events and lets one wait for a number of them. */
export class Counter {
  #count = 0
  #awaited = Number.POSITIVE_INFINITY
  #reached = () => {}

  add(n = 1) {
    this.#count += n
    if (this.#count >= this.#awaited) {
      this.#awaited = Number.POSITIVE_INFINITY
      this.#reached()
    }
  }

  /** Resolves when `n` have been counted since the beginning. */
  reaches(n) {
    if (this.#count >= n) return Promise.resolve()
    return new Promise((resolve) => {
      this.#awaited = n
      this.#reached = resolve
    })
  }
}

/**
 * Asks the database until `sql` returns no row or a first column that is false or 0. A run is over when its last end is
 * committed, not when the last handler returned.
 */
export async function untilNone(pool, sql, pauseMs = 2) {
  for (;;) {
    const { rows } = await pool.query({ text: sql, rowMode: 'array' })
    if (!rows[0] || !Number(rows[0][0])) return
    await sleep(pauseMs)
  }
}

export function quantiles(values) {
  const sorted = values.toSorted((a, b) => a - b)
  const at = (share) => round(sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)], 2)
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99) }
}

export function median(values) {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

export function round(value, digits = 0) {
  return Number(value.toFixed(digits))
}

/** `count` numbers cut into lists of at most `size`. */
export function* chunks(count, size) {
  for (let from = 0; from < count; from += size) {
    yield Array.from({ length: Math.min(size, count - from) }, (_, index) => from + index)
  }
}
