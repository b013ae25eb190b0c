import { setTimeout as sleep } from 'node:timers/promises'
import { isTransient } from '../feed/transient.ts'

const BACKOFF_MS = 100
const BACKOFF_CAP_MS = 2_000

/** Reads, and reads again while the database is out of reach: who watches sits an outage out. Ends with the signal. */
export async function patiently<T>(read: () => Promise<T>, stop: AbortSignal): Promise<T> {
  for (let failures = 0; ; failures++) {
    try {
      return await read()
    } catch (error) {
      if (stop.aborted || !isTransient(error)) throw error
    }
    const pause = Math.min(BACKOFF_MS * 2 ** failures, BACKOFF_CAP_MS)
    await sleep(pause * (0.5 + Math.random() / 2), undefined, { signal: stop })
  }
}
