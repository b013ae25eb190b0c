import { statement } from '../../db/statement.ts'
import type { Tx } from '../../db/transaction.ts'
import type { ChangedRow } from './apply-moves.ts'

/**
 * Counts the failed children of the present wave against their parents' failure tolerance, from the children's rows, and
 * marks the parents that do not bear them (`failing_child_id`). Children whose policy is IGNORE do not count, nor do
 * cancelled ones. A share (`10%`) is of the wave's children, and is judged once the parent waits and so knows them all.
 * The parents' rows are locked by this transaction. Returns the rows with what was marked.
 */
export async function judgeTolerance(tx: Tx, rows: readonly ChangedRow[]): Promise<ChangedRow[]> {
  const ids = rows.filter((row) => row.judge && row.failing_child_id === null).map((row) => row.id)
  if (ids.length === 0) return [...rows]
  const marked = new Map((await tx.query(markIntolerant, [ids])).map((row) => [row.id, row.failing_child_id]))
  return rows.map((row) => ({ ...row, failing_child_id: row.failing_child_id ?? marked.get(row.id) ?? null }))
}

const markIntolerant = statement<{ id: string; failing_child_id: string }>(
  'tolerance.mark',
  (t) => `
  with parent as (
    select id, spawn_wave, rtrim(failure_tolerance, '%')::int as bears, right(failure_tolerance, 1) = '%' as is_share,
      state = 'waiting' or (state = 'paused' and paused_from = 'waiting') as waits
    from ${t.job} where id = any($1::uuid[])
  ),
  failed as (
    select p.id, count(*) as n, (array_agg(c.id order by c.finished_at desc))[1] as last_failed
    from parent p
    join ${t.job} c on c.parent_id = p.id and c.parent_wave = p.spawn_wave
    where c.state = 'failed' and c.archived_at is null and c.on_child_failure <> 'ignore'
    group by p.id
  ),
  wave as (
    select p.id, count(*) as n from parent p
    join ${t.job} c on c.parent_id = p.id and c.parent_wave = p.spawn_wave
    where p.is_share and p.waits and c.archived_at is null
    group by p.id
  )
  update ${t.job} j set failing_child_id = f.last_failed
  from failed f join parent p on p.id = f.id left join wave w on w.id = f.id
  where j.id = f.id
    and case when p.is_share then p.waits and f.n * 100 > p.bears * w.n else f.n > p.bears end
  returning j.id, j.failing_child_id`,
)
