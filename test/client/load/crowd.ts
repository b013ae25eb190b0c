import { until } from '../../support/until.ts'
import { type RawSubscription, subscribeRaw, type TransportName } from './raw-subscription.ts'

/** Many subscribers to the events of one type of jobs. */
export interface Crowd {
  /** When each of them was told of a job's event, on the monotonic clock, in milliseconds. */
  arrivals(jobId: string): readonly number[]
  /** Why subscriptions have ended, which none should. */
  readonly ends: readonly string[]
  close(): void
}

export interface CrowdOptions {
  /** Address of the API over HTTP. */
  url: string
  size: number
  /** By turns. */
  transports: readonly TransportName[]
  type: string
}

/** Connections that are opened at once. */
const AT_ONCE = 50
const OPEN_MS = 60_000

/** Subscribes, and returns when each has had its first frame. */
export async function gatherCrowd({ url, size, transports, type }: CrowdOptions): Promise<Crowd> {
  const query = `subscription { jobEvents(filter: { types: ["${type}"] }) { events { jobId } cursor } }`
  const all: RawSubscription[] = []
  const ends: string[] = []
  const arrivals = new Map<string, number[]>()
  let begun = 0

  async function open(n: number): Promise<void> {
    let first = true
    const onFrame = (text: string) => {
      const now = performance.now()
      if (first) {
        first = false
        begun++
      }
      for (const [id] of text.matchAll(/JB_[0-9a-f-]{36}/g)) {
        const known = arrivals.get(id)
        if (known) known.push(now)
        else arrivals.set(id, [now])
      }
    }
    const transport = transports[n % transports.length]!
    all.push(await subscribeRaw(transport, { url, query, onFrame, onEnd: (reason) => ends.push(reason) }))
  }

  const crowd: Crowd = {
    arrivals: (jobId) => arrivals.get(`JB_${jobId}`) ?? [],
    ends,
    close() {
      for (const subscription of all) subscription.close()
    },
  }
  try {
    for (let n = 0; n < size; n += AT_ONCE) {
      const opened = await Promise.allSettled(
        Array.from({ length: Math.min(AT_ONCE, size - n) }, (_, k) => open(n + k)),
      )
      const refused = opened.find((one) => one.status === 'rejected')
      if (refused) throw refused.reason
    }
    await until(() => begun === size, { timeout: OPEN_MS, what: `${size} first frames` })
    return crowd
  } catch (error) {
    crowd.close()
    throw error
  }
}
