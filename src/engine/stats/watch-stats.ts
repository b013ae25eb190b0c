import { parseDuration } from '../duration.ts'
import { ValidationError } from '../errors.ts'
import { createNap } from '../feed/nap.ts'
import { patiently } from '../watch/patiently.ts'
import { Stoppable } from '../watch/stoppable.ts'
import type { Stats } from './stats.ts'

/** How the figures are watched. */
export interface WatchStatsOptions {
  /** How often: `500ms` to `1d`, as text or in milliseconds; default one second. */
  interval?: number | string | undefined
  /** Ends it as `return()` does. */
  signal?: AbortSignal | undefined
}

/** Watches the figures: see {@link Engine.watchStats}. */
export type WatchStats = (options?: WatchStatsOptions) => AsyncIterableIterator<Stats, undefined>

const MIN_MS = 500
const MAX_MS = 86_400_000
const DEFAULT_MS = 1_000

/** One reading again and again, for all who watch at the same interval. */
interface Poll {
  /** What was read last, and how many times. */
  latest: Stats | undefined
  count: number
  readonly watchers: Set<() => void>
  readonly end: AbortController
}

/** Makes the watching. An interval costs one reading each time, however many watch. */
export function createStatsWatch(read: () => Promise<Stats>): WatchStats {
  const polls = new Map<number, Poll>()

  function pollOf(intervalMs: number): Poll {
    let poll = polls.get(intervalMs)
    if (poll === undefined) {
      poll = { latest: undefined, count: 0, watchers: new Set(), end: new AbortController() }
      polls.set(intervalMs, poll)
      const own = poll
      // An error ends this poll, and all who watch find that out.
      keepReading(own, intervalMs).catch((error: unknown) => own.end.abort(error))
    }
    return poll
  }

  async function keepReading(poll: Poll, intervalMs: number): Promise<void> {
    const nap = createNap()
    const { signal } = poll.end
    signal.addEventListener('abort', () => nap.interrupt())
    while (!signal.aborted) {
      const begun = performance.now()
      poll.latest = await patiently(read, signal)
      poll.count++
      for (const tell of poll.watchers) tell()
      await nap.sleep(intervalMs - (performance.now() - begun))
    }
  }

  async function* figures(intervalMs: number, stop: AbortSignal): AsyncGenerator<Stats> {
    const poll = pollOf(intervalMs)
    let wake = () => {}
    const tell = () => wake()
    poll.watchers.add(tell)
    stop.addEventListener('abort', tell)
    poll.end.signal.addEventListener('abort', tell)
    try {
      for (let seen = 0; !stop.aborted; ) {
        // Only what is new: whoever is slow misses figures, and holds none.
        if (poll.count > seen) {
          seen = poll.count
          yield poll.latest!
        } else if (poll.end.signal.aborted) throw poll.end.signal.reason
        else {
          await new Promise<void>((resolve) => {
            wake = resolve
          })
        }
      }
    } finally {
      poll.watchers.delete(tell)
      poll.end.signal.removeEventListener('abort', tell)
      if (poll.watchers.size === 0) poll.end.abort()
      if (poll.end.signal.aborted && polls.get(intervalMs) === poll) polls.delete(intervalMs)
    }
  }

  return ({ interval = DEFAULT_MS, signal } = {}) => {
    const intervalMs = checkedInterval(interval)
    return new Stoppable((stop) => figures(intervalMs, stop), signal)
  }
}

function checkedInterval(interval: number | string): number {
  let ms: number
  try {
    ms = parseDuration(interval)
  } catch (error) {
    throw ValidationError.of('interval', (error as Error).message)
  }
  if (ms < MIN_MS || ms > MAX_MS) throw ValidationError.of('interval', 'must be 500ms to 1d')
  return ms
}
