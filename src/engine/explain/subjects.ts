import { statement, type TableNames } from '../../db/statement.ts'
import type { JobTable } from '../../db/tables.ts'
import type { Tx } from '../../db/transaction.ts'
import { jobColumns, NO_HEAVY } from '../reads/columns.ts'
import { isOpenChildOf } from '../reconcile/waiting-page.ts'

/** Open children of one parent that are counted, and no more. */
export const MAX_COUNTED = 1000

/** A job with what stands beside it: all in one row, of one moment. */
export interface Subject extends JobTable {
  /** The database's clock. */
  now: Date
  assignee_status: string | null
  assignee_since: Date | null
  /** Null: deleted, or it is a root. */
  parent_type: string | null
  parent_state: string | null
  parent_policy: string | null
  parent_ended: Date | null
  /** Of the worker that holds it; null where its row is gone. */
  host: string | null
  pid: number | null
  heartbeat_at: Date | null
  beat_interval: number | null
  worker_dead: boolean
  /** Open children by their rows, at most {@link MAX_COUNTED}, if it waits or will on resume; and the first five. */
  open: number
  first_open: string[]
  /** How it came to be paused. */
  paused_at: Date | null
  paused_by: string | null
  paused_why: string | null
  /** How it came to be queued, if it is to wait for its time. */
  queued_detail: { retryDelayMs?: number; delayMs?: number } | null
}

/** The state that a job is in, or goes back to when it is resumed. */
export function stateBelow(job: JobTable): string {
  return job.state === 'paused' ? (job.paused_from ?? 'queued') : job.state
}

/** Reads the jobs that have these ids; absent where there is none. */
export async function readSubjects(tx: Tx, ids: readonly string[]): Promise<Map<string, Subject>> {
  const rows = await tx.query(subjects, [ids])
  return new Map(rows.map((row) => [row.id, row]))
}

function openChildren(t: TableNames): string {
  return `
    select count(*)::int as n, (array_agg(c.id order by c.id))[1:5] as first
    from (
      select c.id from ${t.job} c
      where ${isOpenChildOf('j.id')} and (j.state = 'waiting' or j.paused_from = 'waiting')
      limit ${MAX_COUNTED}) c`
}

// Each job by the primary key, and each neighbour by one probe: `limit 1` keeps the planner from joining them as sets,
// for which it may read whole tables. The last pause and the last queueing are near the end of a job's events.
const subjects = statement<Subject>(
  'explain.subjects',
  (t) => `
  select ${jobColumns('j', NO_HEAVY)}, now() as now,
    a.status as assignee_status, a.updated_at as assignee_since,
    p.type as parent_type, p.state as parent_state, p.orphan_policy as parent_policy, p.finished_at as parent_ended,
    w.host, w.pid, w.heartbeat_at, w.beat_interval, w.dead_at is not null as worker_dead,
    open.n as open, coalesce(open.first, '{}') as first_open,
    paused.at as paused_at, paused.actor as paused_by, paused.reason as paused_why, queued.detail as queued_detail
  from unnest($1::uuid[]) s(id)
  cross join lateral (select * from ${t.job} j where j.id = s.id limit 1) j
  left join lateral (select * from ${t.assignee} a where a.id = j.assignee_id limit 1) a on true
  left join lateral (select * from ${t.job} p where p.id = j.parent_id limit 1) p on true
  left join lateral (select * from ${t.worker} w where w.id = j.worker_id limit 1) w on j.state = 'running'
  cross join lateral (${openChildren(t)}) open
  left join lateral (
    select e.at, e.actor, e.reason from ${t.jobEvent} e
    where e.job_id = j.id and j.state = 'paused' and e.kind = 'moved' and e."to" = 'paused'
    order by e.version desc limit 1) paused on true
  left join lateral (
    select e.detail from ${t.jobEvent} e
    where e.job_id = j.id and j.state in ('queued', 'paused') and j.run_at > now() and e.kind in ('created', 'moved')
      and e."from" is distinct from 'paused' and (e."from" = 'running' or e."to" is distinct from 'paused')
    order by e.version desc limit 1) queued on true`,
)
