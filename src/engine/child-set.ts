import { type TableNames, unindexed } from '../db/statement.ts'
import { ACTIVE_SQL } from './states.ts'

/*
 * Child set key: SHA-256 over the wave being delivered and a line for each member, in order of id: id, state and
 * completion epoch. Operation id: SHA-256 over parent id, NUL, key, behind a fixed prefix.
 */

/**
 * Common table expressions down to `child_set(id, tree_id, wave, open_children, open, child_set_key, operation_id)`: the
 * child sets of those of the parents $1 that may be woken: that wait, are not archived and are not to fail. `wave` is the
 * one that a wake would deliver, `open` the number of open members by their rows.
 */
export function childSets(t: TableNames): string {
  return `
  parent as materialized (
    select p.id, p.tree_id, p.open_children, greatest(p.wave, coalesce(r.wave, 0)) + 1 as wave
    from ${t.job} p
    left join ${t.wakeReceipt} r on r.parent_id = p.id
    where p.id = any($1::uuid[]) and ${unindexed(`p.state = 'waiting'`)} and p.archived_at is null
      and p.failing_child_id is null
  ),
  members as (
    select p.id, p.tree_id, p.wave, p.open_children,
      count(c.id) filter (where c.state in (${ACTIVE_SQL}))::int as open,
      encode(sha256(convert_to(p.wave::text || coalesce(
        string_agg(E'\\n' || c.id::text || ' ' || c.state || ' ' || c.completion_epoch::text, '' order by c.id), ''),
        'UTF8')), 'hex') as child_set_key
    from parent p
    left join ${t.job} c on c.parent_id = p.id and c.archived_at is null
    group by p.id, p.tree_id, p.wave, p.open_children
  ),
  child_set as (
    select m.*, 'job_children_completed:' || m.id::text || ':' || encode(sha256(
      convert_to(m.id::text, 'UTF8') || '\\x00'::bytea || convert_to(m.child_set_key, 'UTF8')), 'hex') as operation_id
    from members m
  )`
}
