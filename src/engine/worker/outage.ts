import type { Logger } from 'pino'
import { errorCodeOf, isConnectionError } from '../../db/connection-errors.ts'

/** First and longest pause between tries, in ms. */
const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 2000

// Invalid transaction state (a primary that became a standby), serialization, resources, locks, operator intervention,
// system errors, internal errors: the statement was right, the server could not do it now.
const SERVER_TROUBLE = /^(25|40|53|55|57|58|XX)/

/** Whether an error is the database's trouble of the moment, so that the same statement may well succeed later. */
export function isOutage(error: unknown): boolean {
  if (isConnectionError(error)) return true
  const code = errorCodeOf(error)
  return code !== undefined && code.length === 5 && SERVER_TROUBLE.test(code)
}

/** Tries on through a database's outages, and tells of each once. */
export interface OutageGuard {
  /**
   * Runs `fn`, again and again while the database is in trouble, until it succeeds. Pauses grow, are jittered, and end
   * as soon as any call through this guard succeeds. A try that has begun is always waited for.
   *
   * @param signal ends the tries: what the last one threw is thrown.
   */
  persist<T>(fn: () => Promise<T>, signal?: AbortSignal): Promise<T>
}

export function createOutageGuard(logger: Logger): OutageGuard {
  let since: number | null = null
  const sleepers = new Set<() => void>()

  const failed = (error: unknown) => {
    if (since !== null) return
    since = performance.now()
    logger.error({ err: error }, 'The database is out of reach: trying on until it is back')
  }
  const succeeded = () => {
    if (since === null) return
    logger.info(`The database is back after ${Math.round(performance.now() - since)} ms`)
    since = null
    for (const wake of [...sleepers]) wake()
  }
  const pause = (ms: number, signal: AbortSignal | undefined) =>
    new Promise<void>((resolve) => {
      const wake = () => {
        clearTimeout(timer)
        sleepers.delete(wake)
        signal?.removeEventListener('abort', wake)
        resolve()
      }
      const timer = setTimeout(wake, ms)
      sleepers.add(wake)
      signal?.addEventListener('abort', wake, { once: true })
    })

  return {
    async persist(fn, signal) {
      for (let longest = FIRST_PAUSE_MS; ; longest = Math.min(longest * 2, LONGEST_PAUSE_MS)) {
        try {
          const result = await fn()
          succeeded()
          return result
        } catch (error) {
          if (!isOutage(error)) throw error
          failed(error)
          if (signal?.aborted) throw error
          await pause(longest * (0.5 + Math.random() / 2), signal)
          if (signal?.aborted) throw error
        }
      }
    },
  }
}
