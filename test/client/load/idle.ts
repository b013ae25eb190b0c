import { readFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Engine } from '../../../src/index.ts'
import { until } from '../../support/until.ts'
import { gatherCrowd } from './crowd.ts'
import type { TransportName } from './raw-subscription.ts'

export interface IdleOptions {
  /** Address of the API over HTTP. */
  url: string
  /** Its process. */
  pid: number
  writer: Engine
  subscriptions: number
  transport: TransportName
  /** How long nothing happens, in milliseconds. */
  restMs: number
}

/** What subscriptions cost on which nothing happens, each on a connection of its own. */
export interface IdleReport {
  subscriptions: number
  transport: TransportName
  rssBeforeMb: number
  rssAfterMb: number
  kbPerSubscription: number
  restSeconds: number
  /** Of one core, over the whole rest. */
  cpuPercent: number
  /** Subscriptions that have ended meanwhile, or were not told of the event after the rest. */
  missing: number
  /** From the commit of that event until the last one was told. */
  lastToldMs: number
}

const TYPE = 'after-rest'
/** For the collector, and what is done once after a connection begins. */
const SETTLE_MS = 3_000
const LAST_FRAME_MS = 60_000
/** Clock ticks of Linux a second, in which it counts the time of processes. */
const TICKS = 100

/** Subscribes and does nothing for a time; then an event shows who is still there. Linux only: it reads /proc. */
export async function measureIdle(options: IdleOptions): Promise<IdleReport> {
  const { url, pid, writer, subscriptions, transport, restMs } = options
  const before = await rssKb(pid)
  const crowd = await gatherCrowd({ url, size: subscriptions, transports: [transport], type: TYPE })
  try {
    await sleep(SETTLE_MS)
    const after = await rssKb(pid)
    const [busy, begun] = [await cpuTicks(pid), performance.now()]
    await sleep(restMs)
    const seconds = (performance.now() - begun) / 1000
    const cpuSeconds = ((await cpuTicks(pid)) - busy) / TICKS
    const { id } = await writer.enqueue({ type: TYPE })
    const committed = performance.now()
    await until(() => crowd.arrivals(id).length >= subscriptions, { timeout: LAST_FRAME_MS }).catch(() => {})
    const told = crowd.arrivals(id)
    return {
      subscriptions,
      transport,
      rssBeforeMb: Math.round(before / 1024),
      rssAfterMb: Math.round(after / 1024),
      kbPerSubscription: Math.round(((after - before) / subscriptions) * 10) / 10,
      restSeconds: Math.round(seconds),
      cpuPercent: Math.round((cpuSeconds / seconds) * 1000) / 10,
      missing: subscriptions - told.length,
      lastToldMs: Math.round(Math.max(0, (told.at(-1) ?? Number.NaN) - committed)),
    }
  } finally {
    crowd.close()
  }
}

/** Memory of a process that is in use, in KB. */
async function rssKb(pid: number): Promise<number> {
  return Number(/VmRSS:\s+(\d+) kB/.exec(await readFile(`/proc/${pid}/status`, 'utf8'))![1])
}

async function cpuTicks(pid: number): Promise<number> {
  // The name, in brackets, may hold anything.
  const fields = (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ').at(-1)!.split(' ')
  return Number(fields[11]) + Number(fields[12])
}
