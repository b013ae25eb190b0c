import { setTimeout as sleep } from 'node:timers/promises'
import type { Engine } from '../../../src/index.ts'
import { until } from '../../support/until.ts'
import { gatherCrowd } from './crowd.ts'

export interface LatencyOptions {
  /** Address of the API over HTTP. */
  url: string
  /** Writes, in this process. */
  writer: Engine
  subscribers: number
  commits: number
  /** Commits a second. */
  rate: number
}

/** From the return of a commit to the arrival of its frame, in milliseconds, over all commits and subscribers. */
export interface LatencyReport {
  subscribers: number
  commits: number
  rate: number
  frames: number
  /** Frames that did not come. */
  missing: number
  p50Ms: number
  p99Ms: number
  maxMs: number
}

const TYPE = 'ping'
const LAST_FRAME_MS = 30_000

/** Commits at a steady rate, and takes the time until each subscriber, half over WebSocket, half over SSE, is told. */
export async function measureLatency(options: LatencyOptions): Promise<LatencyReport> {
  const { url, writer, subscribers, commits, rate } = options
  const crowd = await gatherCrowd({ url, size: subscribers, transports: ['webSocket', 'sse'], type: TYPE })
  try {
    const committed = new Map<string, number>()
    const started = performance.now()
    for (let n = 0; n < commits; n++) {
      // By the clock, so that a slow commit does not make those after it fewer.
      await sleep(Math.max(0, started + (n * 1000) / rate - performance.now()))
      const { id } = await writer.enqueue({ type: TYPE })
      committed.set(id, performance.now())
    }
    const ids = [...committed.keys()]
    const complete = () => ids.every((id) => crowd.arrivals(id).length >= subscribers)
    await until(complete, { timeout: LAST_FRAME_MS }).catch(() => {})
    // A frame may overtake the answer to the commit.
    const latencies = ids.flatMap((id) => crowd.arrivals(id).map((at) => Math.max(0, at - committed.get(id)!)))
    latencies.sort((a, b) => a - b)
    const quantile = (share: number) => round(latencies[Math.ceil(latencies.length * share) - 1] ?? Number.NaN)
    return {
      subscribers,
      commits,
      rate,
      frames: latencies.length,
      missing: commits * subscribers - latencies.length,
      p50Ms: quantile(0.5),
      p99Ms: quantile(0.99),
      maxMs: quantile(1),
    }
  } finally {
    crowd.close()
  }
}

const round = (ms: number) => Math.round(ms * 10) / 10
