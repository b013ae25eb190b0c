import { statement } from '../../db/statement.ts'
import { ACTIVE_STATES, TERMINAL_SQL } from '../states.ts'

/** What one cheap look gives. */
export interface SummaryRow {
  at: Date
  oldest_due: Date | null
  oldest_waiting: Date | null
  ticked_at: Date | null
  took_ms: number | null
  stuck: number
}

/**
 * One probe of the claims' index for each (type, queue, priority) that has queued jobs, skipping from one to the next;
 * one for the oldest wait. The longest-waiting parent is that of which the time is known.
 */
export const readSummary = statement<SummaryRow>(
  'stats.summary',
  (t) => `
  with recursive kind(type, queue, priority, run_at) as (
    (select j.type, j.queue, j.priority, j.run_at from ${t.job} j
     where j.state = 'queued' and j.archived_at is null
     order by j.type, j.queue, j.priority, j.run_at limit 1)
    union all
    select next.type, next.queue, next.priority, next.run_at from kind
    cross join lateral (
      select j.type, j.queue, j.priority, j.run_at from ${t.job} j
      where j.state = 'queued' and j.archived_at is null
        and (j.type, j.queue, j.priority) > (kind.type, kind.queue, kind.priority)
      order by j.type, j.queue, j.priority, j.run_at limit 1) next)
  select clock_timestamp() as at,
    (select min(run_at) from kind where run_at <= now()) as oldest_due,
    (select waiting_since from ${t.job} where state = 'waiting' order by waiting_since, id limit 1) as oldest_waiting,
    tick.finished_at as ticked_at, (extract(epoch from tick.took) * 1000)::float8 as took_ms,
    coalesce(tick.state ->> 'stuck', '0')::int as stuck
  from (select) one left join ${t.maintenance} tick on tick.name = 'parent-wakes'`,
)

/** Each active state from its own partial index. */
export const countActive = statement<{ state: string; count: number }>('stats.count-active', (t) =>
  ACTIVE_STATES.map(
    (state) =>
      `select '${state}' as state, count(*)::int as count from ${t.job} where state = '${state}' and archived_at is null`,
  ).join(' union all '),
)

/** Reads the whole table. */
export const countTerminal = statement<{ state: string; count: number }>(
  'stats.count-terminal',
  (t) => `
  select state, count(*)::int as count from ${t.job}
  where state in (${TERMINAL_SQL}) and archived_at is null group by state`,
)
