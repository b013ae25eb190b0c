import { setTimeout as delay } from 'node:timers/promises'

/** How long and how often `until` looks, in milliseconds, and what it waits for in words, for the message. */
export interface UntilOptions {
  readonly timeout?: number
  readonly interval?: number
  readonly what?: string
}

type Truthy<T> = Exclude<T, null | undefined | false | 0 | '' | 0n>

/**
 * Waits until `condition` gives something truthy and returns it. An error it throws counts as "not yet".
 * @throws Error at the deadline, saying what was waited for and what the condition last gave or threw
 */
export async function until<T>(condition: () => T | Promise<T>, options: UntilOptions = {}): Promise<Truthy<T>> {
  const { timeout = 10_000, interval = 20, what = condition.toString() } = options
  const started = performance.now()
  let last: string
  let cause: unknown
  do {
    try {
      const value = await withinTime(condition, timeout - (performance.now() - started))
      if (value) return value as Truthy<T>
      last = `it last gave ${show(value)}`
      cause = undefined
    } catch (error) {
      last = `it last threw ${error}`
      cause = error
    }
    await delay(interval)
  } while (performance.now() - started < timeout)
  throw new Error(`Waited ${timeout} ms in vain for: ${what}; ${last}`, { cause })
}

/** A condition that never answers must not outlast the deadline either. */
async function withinTime<T>(condition: () => T | Promise<T>, ms: number): Promise<T> {
  const controller = new AbortController()
  const late = delay(Math.max(ms, 1), undefined, { signal: controller.signal }).then(() => {
    throw new Error('the condition did not answer in time')
  })
  late.catch(() => {})
  try {
    return await Promise.race([condition(), late])
  } finally {
    controller.abort()
  }
}

function show(value: unknown): string {
  return typeof value === 'bigint' ? `${value}n` : (JSON.stringify(value) ?? String(value))
}
