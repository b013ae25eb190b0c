import type { Counter } from 'prom-client'
import type { Database } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import type { EngineMetrics } from '../metrics.ts'

/** What is counted of wakes over all processes: names of counters, those of `emitted` with the source behind a colon. */
export type WakeCounterName =
  | 'candidates'
  | 'deduplicated'
  | 'superseded'
  | 'assignee_unresolved'
  | 'drift_repaired'
  | `emitted:${string}`

/** Carries a process's counters of wakes into the database, where those of all processes add up. */
export interface WakeCounters {
  /** From now on, every five seconds. */
  start(): void
  /** Carries the rest over. */
  stop(): Promise<void>
  /** Counted since the database was made, by all processes; by this one up to now, by others up to seconds ago. */
  read(): Promise<ReadonlyMap<WakeCounterName, bigint>>
}

const INTERVAL_MS = 5_000

// In order of name: two processes that add at once never wait for each other in a circle.
const add = statement(
  'stats.add-wakes',
  (t) => `
  insert into ${t.wakeCounter} as counter (name, value)
  select name, growth from unnest($1::text[], $2::bigint[]) given(name, growth) order by name
  on conflict (name) do update set value = counter.value + excluded.value`,
)

const readAll = statement<{ name: WakeCounterName; value: string }>(
  'stats.wakes',
  (t) => `select name, value from ${t.wakeCounter}`,
)

/** Makes the carrier. It does nothing, but for `read`, while nothing grows. */
export function createWakeCounters(
  db: Database,
  metrics: EngineMetrics,
  { intervalMs = INTERVAL_MS, onError = (_error: unknown) => {} } = {},
): WakeCounters {
  const carried = new Map<WakeCounterName, number>()
  let timer: NodeJS.Timeout | undefined
  let last: Promise<unknown> = Promise.resolve()

  /** One after the other: else what is being carried over would be read twice, or not at all. */
  function inTurn<T>(run: () => Promise<T>): Promise<T> {
    const turn = last.then(run)
    last = turn.catch(() => {})
    return turn
  }

  async function growth(): Promise<[WakeCounterName, number][]> {
    const all = await countersOf(metrics)
    return all.flatMap(([name, value]): [WakeCounterName, number][] => {
      const grown = value - (carried.get(name) ?? 0)
      return grown > 0 ? [[name, grown]] : []
    })
  }

  const carry = () =>
    inTurn(async () => {
      const grown = await growth()
      if (grown.length === 0) return
      await db.query(add, [grown.map(([name]) => name), grown.map(([, by]) => by)])
      for (const [name, by] of grown) carried.set(name, (carried.get(name) ?? 0) + by)
    }).catch(onError)

  return {
    start() {
      timer ??= setInterval(carry, intervalMs)
      timer.unref()
    },
    stop() {
      clearInterval(timer)
      return carry()
    },
    read: () =>
      inTurn(async () => {
        const totals = new Map((await db.query(readAll)).map(({ name, value }) => [name, BigInt(value)]))
        for (const [name, by] of await growth()) totals.set(name, (totals.get(name) ?? 0n) + BigInt(by))
        return totals
      }),
  }
}

async function countersOf(metrics: EngineMetrics): Promise<[WakeCounterName, number][]> {
  const { values } = await metrics.wakeEmitted.get()
  const totalOf = async (counter: Counter) => (await counter.get()).values[0]?.value ?? 0
  return [
    ['candidates', await totalOf(metrics.wakeCandidates)],
    ['deduplicated', await totalOf(metrics.wakeDeduplicated)],
    ['superseded', await totalOf(metrics.wakeSuperseded)],
    ['assignee_unresolved', await totalOf(metrics.wakeAssigneeUnresolved)],
    ['drift_repaired', await totalOf(metrics.driftRepaired)],
    ...values.map(({ labels, value }): [WakeCounterName, number] => [`emitted:${labels.source}`, value]),
  ]
}
