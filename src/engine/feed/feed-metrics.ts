import { Counter, Gauge, type Registry } from 'prom-client'
import type { Feed } from './hub.ts'

/** Adds the figures of a feed to a registry. They are read when they are scraped. */
export function registerFeedMetrics(registry: Registry, feed: Pick<Feed, 'stats' | 'heldUpBy'>): void {
  const registers = [registry]
  const gauge = (name: string, help: string, value: () => number | Promise<number>) =>
    new Gauge({
      name: `coppice_feed_${name}`,
      help,
      registers,
      async collect() {
        this.set(await value())
      },
    })
  const counter = (name: string, help: string, value: () => number) =>
    new Counter({
      name: `coppice_feed_${name}`,
      help,
      registers,
      collect() {
        this.reset()
        this.inc(value())
      },
    })
  gauge('listening', '1 while rings of other processes arrive by LISTEN, 0 while the event log is polled', () =>
    feed.stats().listening ? 1 : 0,
  )
  counter('reconnects_total', 'Times that LISTEN came into force again', () => feed.stats().reconnects)
  gauge('lag_seconds', 'For how long something has been there to read', () => feed.stats().lagMs / 1000)
  gauge(
    'held_up_seconds',
    'Age of the oldest open transaction whose events may yet come; NaN while the database is out of reach',
    () =>
      feed.heldUpBy().then(
        (age) => (age ?? 0) / 1000,
        () => Number.NaN,
      ),
  )
  gauge('subscribers', 'Open subscriptions', () => feed.stats().subscribers)
  counter(
    'ring_misses_total',
    'Times that a subscriber read the table because it fell behind what is shared',
    () => feed.stats().ringMisses,
  )
}
