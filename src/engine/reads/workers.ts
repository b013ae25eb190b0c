import type { Queryable } from '../../db/database.ts'
import { statement, type TableNames } from '../../db/statement.ts'
import { stillnessLimitMs } from '../lease/observer.ts'

/** One incarnation of a worker process. */
export interface Worker {
  /** Bare UUID. */
  id: string
  host: string
  pid: number
  /** Empty: all. */
  queues: string[]
  types: string[]
  /** Most jobs at once. */
  concurrency: number
  /** Jobs that it holds. */
  running: number
  /** It claims no more. */
  stopping: boolean
  startedAt: Date
  heartbeatAt: Date
}

/** Whether a heartbeat of this age, at this interval, is one of a worker that lives. In ms. */
export function heartbeatLives(ageMs: number, intervalMs: number): boolean {
  return ageMs <= stillnessLimitMs(intervalMs)
}

/** The workers that nobody has declared dead and that have beaten lately: after all have died, nobody declares it. */
export async function liveWorkers(q: Queryable): Promise<Worker[]> {
  const rows = await q.query(findUndead)
  return rows.filter((row) => heartbeatLives(row.age_ms, row.beat_interval)).map(workerFromRow)
}

/** The workers that have these ids, alive or not, in no order; absent where the row is gone. */
export async function workersById(q: Queryable, ids: readonly string[]): Promise<Worker[]> {
  return (await q.query(findWorkers, [ids])).map(workerFromRow)
}

interface Row extends Omit<Worker, 'startedAt' | 'heartbeatAt'> {
  started_at: Date
  heartbeat_at: Date
  age_ms: number
  beat_interval: number
}

function workerFromRow({ started_at, heartbeat_at, age_ms: _age, beat_interval: _interval, ...row }: Row): Worker {
  return { ...row, startedAt: started_at, heartbeatAt: heartbeat_at }
}

// By the index over running jobs: as many rows as there are slots in all workers.
const workersWhere = (t: TableNames, condition: string) => `
  select w.id, w.host, w.pid, w.types, w.queues, w.stopping, w.concurrency, busy.n as running, w.beat_interval,
    w.started_at, w.heartbeat_at, ((extract(epoch from now()) - extract(epoch from w.heartbeat_at)) * 1000)::float8 as age_ms
  from ${t.worker} w
  cross join lateral (
    select count(*)::int as n from ${t.job} j where j.worker_id = w.id and j.state = 'running') busy
  where ${condition}
  order by w.started_at, w.id`

const findUndead = statement<Row>('reads.workers', (t) => workersWhere(t, 'w.dead_at is null'))
const findWorkers = statement<Row>('reads.workers-by-id', (t) => workersWhere(t, 'w.id = any($1::uuid[])'))
