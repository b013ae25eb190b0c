import { statement } from '../../db/statement.ts'
import type { Tx } from '../../db/transaction.ts'
import { stillnessLimitMs } from '../lease/observer.ts'

/** A worker whose heartbeat lives. */
export interface LiveWorker {
  id: string
  host: string
  types: string[]
  /** Empty: all. */
  queues: string[]
  stopping: boolean
  concurrency: number
  /** Jobs that it runs. */
  busy: number
}

/** Whether a heartbeat of this age, at this interval, is one of a worker that lives. In ms. */
export function heartbeatLives(ageMs: number, intervalMs: number): boolean {
  return ageMs <= stillnessLimitMs(intervalMs)
}

/** The workers that nobody has declared dead and that have beaten lately: after all have died, nobody declares it. */
export async function liveWorkers(tx: Tx): Promise<LiveWorker[]> {
  const rows = await tx.query(workers)
  return rows.filter((row) => heartbeatLives(row.age_ms, row.beat_interval))
}

/** Those of them that would claim a job of this type and queue. */
export function serving(workers: readonly LiveWorker[], { type, queue }: { type: string; queue: string }) {
  return workers.filter(
    (worker) =>
      !worker.stopping && worker.types.includes(type) && (worker.queues.length === 0 || worker.queues.includes(queue)),
  )
}

// By the index over running jobs: as many rows as there are slots in all workers.
const workers = statement<LiveWorker & { age_ms: number; beat_interval: number }>(
  'explain.workers',
  (t) => `
  select w.id, w.host, w.types, w.queues, w.stopping, w.concurrency, busy.n as busy, w.beat_interval,
    (extract(epoch from now() - w.heartbeat_at) * 1000)::float8 as age_ms
  from ${t.worker} w
  cross join lateral (
    select count(*)::int as n from ${t.job} j where j.worker_id = w.id and j.state = 'running') busy
  where w.dead_at is null
  order by w.started_at, w.id`,
)
