import { statement, type TableNames } from '../../db/statement.ts'
import type { Tx } from '../../db/transaction.ts'
import { bearsSql } from '../failure-tolerance.ts'
import type { ChangedRow } from './apply-moves.ts'

/**
 * Judges parents by their children's rows where that is asked for, and marks those that do not bear what failed
 * (`failing_child_id`). The parents' rows are locked by this transaction. Returns the rows with what was marked.
 */
export async function judgeTolerance(tx: Tx, rows: readonly ChangedRow[]): Promise<ChangedRow[]> {
  const ids = rows.filter((row) => row.judge && row.failing_child_id === null).map((row) => row.id)
  if (ids.length === 0) return [...rows]
  const marked = await markUnborne(tx, ids)
  return rows.map((row) => ({ ...row, failing_child_id: row.failing_child_id ?? marked.get(row.id) ?? null }))
}

/**
 * Marks those of some parents that are to fail for a child, by their children's rows; returns the children, by parent.
 * The parents' rows are locked by an earlier statement of this transaction.
 */
export async function markUnborne(tx: Tx, ids: readonly string[]): Promise<Map<string, string>> {
  return new Map((await tx.query(mark, [ids])).map((row) => [row.id, row.failing_child_id]))
}

/**
 * Common table expressions down to `unborne(id, child_id)`: those of the parents $1 that do not bear a failed child of
 * their present wave, by their rows: one that takes its parent with it, or the last of more than their tolerance. Archived
 * children do not count, nor do cancelled ones; against the tolerance, neither do those whose policy is IGNORE. A share
 * (`10%`) is of the wave's children, and is judged once the parent waits and so knows them all. A parent that has failed
 * for a child and was retried bears what had failed by then.
 */
export function unborneSql(t: TableNames): string {
  return `
  parent as materialized (
    select id, spawn_wave, ${bearsSql('failure_tolerance')} as bears, right(failure_tolerance, 1) = '%' as is_share,
      state = 'waiting' or (state = 'paused' and paused_from = 'waiting') as waits,
      case when error_code = 'CHILD_FAILED' then waiting_since end as retried_at
    from ${t.job} where id = any($1::uuid[]) and failing_child_id is null
  ),
  failed as (
    select p.id, count(*) filter (where c.on_child_failure <> 'ignore') as n,
      (array_agg(c.id order by c.finished_at desc) filter (where c.on_child_failure <> 'ignore'))[1] as last_failed,
      (array_agg(c.id order by c.id) filter (where c.on_child_failure = 'fail_parent'))[1] as taking
    from parent p
    cross join lateral (
      select f.id, f.on_child_failure, f.finished_at from ${t.job} f
      where f.parent_id = p.id and f.parent_wave = p.spawn_wave and f.state = 'failed'
        and coalesce(f.parent_id is not null and f.archived_at is null and f.state in ('failed', 'cancelled'), false)
        and (p.retried_at is null or f.finished_at is null or f.finished_at >= p.retried_at)
    ) c
    group by p.id
  ),
  wave as (
    select p.id, members.n from parent p
    cross join lateral (
      select count(*) as n from ${t.job} c
      where c.parent_id = p.id and c.parent_wave = p.spawn_wave and c.archived_at is null) members
    where p.is_share and p.waits and exists (select from failed f where f.id = p.id)
  ),
  unborne as (
    select p.id, coalesce(f.taking, f.last_failed) as child_id
    from failed f join parent p on p.id = f.id left join wave w on w.id = f.id
    where f.taking is not null
      or case when p.is_share then p.waits and f.n * 100 > p.bears * w.n else f.n > p.bears end
  )`
}

const mark = statement<{ id: string; failing_child_id: string }>(
  'tolerance.mark',
  (t) => `
  with ${unborneSql(t)}
  update ${t.job} j set failing_child_id = u.child_id from unborne u where j.id = u.id
  returning j.id, j.failing_child_id`,
)
