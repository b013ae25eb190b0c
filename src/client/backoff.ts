/** Pauses before a subscription comes back, in milliseconds. */
export interface BackoffOptions {
  /** After the first failure; doubles with each further one. Default 250. */
  first?: number | undefined
  /** Longest; default 10,000. */
  most?: number | undefined
}

/** The pause after so many failures in a row: between half and all of what it would be, so that clients do not all come at once. */
export function backoff(failures: number, { first = 250, most = 10_000 }: BackoffOptions): number {
  return Math.min(first * 2 ** failures, most) * (0.5 + Math.random() / 2)
}

/** Waits; less if the signal is aborted. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted || ms <= 0) return resolve()
    const done = () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, ms)
    signal.addEventListener('abort', done)
  })
}
