import type { Database } from '../../db/database.ts'
import { statement, unindexed } from '../../db/statement.ts'
import { transaction } from '../../db/transaction.ts'
import { added } from '../counter-sql.ts'
import { insertEvents } from '../event-sql.ts'
import { treeBucket } from '../locks.ts'
import { TERMINAL_SQL } from '../states.ts'
import { type ChangedRow, wakeSettled } from './apply-moves.ts'
import { type MoveColumns, moveColumns, moveOf } from './outcome-move.ts'
import { type BatchResult, emptyResult, type SettleItem } from './settle-batch.ts'

/**
 * Settles attempts of jobs without children: one statement for the whole batch, and a second only when a waiting parent
 * reached zero, which verifies from the children's rows and wakes. A row that the statement did not return is deferred
 * (its tree lock was not to be had), has children, or is no longer held: the inner path finds out which.
 */
export async function settleLeaves(db: Database, items: readonly SettleItem[], actor: string): Promise<BatchResult> {
  const moves: MoveColumns = moveColumns(items.map((item) => moveOf(item)))
  return transaction(db, async (tx) => {
    const rows = await tx.query(settleBatch, [
      db.lockSpace,
      actor,
      items.map((item) => treeBucket(item.job.treeId)),
      ...moves,
    ])
    const result = emptyResult()
    const fates = new Map(rows.map((row) => [row.id, row.what]))
    for (const item of items) {
      const fate = fates.get(item.job.id)
      const list = fate === 'moved' ? result.settled : fate === 'other' ? result.other : result.deferred
      list.push(item)
    }
    const parents = rows.filter((row): row is ParentRow => row.what === 'parent')
    return { ...result, ...(await wakeSettled(tx, parents, actor)) }
  })
}

interface ItemRow {
  /** `other`: its tree lock was had, and still it was not moved. */
  what: 'moved' | 'other'
  id: string
}

interface ParentRow extends ChangedRow {
  what: 'parent'
}

// Lock order: tree locks (tried once a job: those held already cost nothing), the jobs' own rows, their parents by
// (depth desc, id). `child_count = 0` keeps movers and parents disjoint: no row is written twice. One decrement a parent,
// whatever the number of its children here. A waiting parent that reaches zero is left to the second statement, which
// writes it once. The own rows are locked one by one through the primary key: joined as sets, the planner, which guesses
// that hardly any job is running, compares every move with every running job (500 ms a batch instead of 20). The update
// finds them by their place: no plan of it can be a bad one. A row that changed between this statement's snapshot and its
// lock is not at that place for this snapshot, and is `other`.
const settleBatch = statement<ItemRow | ParentRow>(
  'settle.leaves',
  (t) => `
  with move as materialized (
    select m.* from unnest($3::int[], $4::uuid[], $5::uuid[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
      $11::float8[], $12::int[], $13::text[], $14::text[])
      as m(bucket, id, claim_token, "to", result, error, error_code, error_stack, delay, spend, reason, detail)
    where pg_try_advisory_xact_lock_shared($1, m.bucket)
  ),
  held as materialized (
    select m.*, row.place from move m
    cross join lateral (
      select j.ctid as place from ${t.job} j
      where j.id = m.id and ${unindexed(`j.state = 'running'`)} and j.claim_token = m.claim_token and j.child_count = 0
      for no key update) row
  ),
  done as (
    update ${t.job} j
    set state = case when m."to" = 'queued' and j.pause_requested then 'paused' else m."to" end,
      paused_from = case when m."to" = 'queued' and j.pause_requested then 'queued' end,
      pause_requested = false,
      result = case when m."to" = 'completed' then m.result::jsonb else j.result end,
      error = coalesce(m.error, j.error),
      error_code = coalesce(m.error_code, j.error_code),
      error_stack = case when m.error is null then j.error_stack else m.error_stack end,
      retry_count = j.retry_count + m.spend,
      run_at = case when m."to" = 'queued' then now() + m.delay * interval '1 millisecond' else j.run_at end,
      completion_epoch = j.completion_epoch + (m."to" in (${TERMINAL_SQL}))::int,
      finished_at = case when m."to" in (${TERMINAL_SQL}) then now() end,
      version = j.version + 1, updated_at = now()
    from held m where j.ctid = m.place
    returning j.id, j.tree_id, j.parent_id, j.type, j.state, j.phase, j.wave, j.attempt, j.version, j.archived_at,
      j.on_child_failure, m.reason, m.detail
  ),
  event as (
    ${insertEvents(t)}
    select 'moved', id, tree_id, parent_id, type, 'running', state, phase, wave, attempt, version, $2, reason,
      detail::jsonb
    from done
  ),
  ended as (
    select parent_id, count(*)::int as n,
      (array_agg(id) filter (where state = 'failed' and on_child_failure = 'fail_parent'))[1] as failing_child_id,
      bool_or(state = 'failed' and on_child_failure <> 'ignore') as any_failed
    from done where state in (${TERMINAL_SQL}) and archived_at is null and parent_id is not null
    group by parent_id
  ),
  parent as materialized (
    select p.id, p.state, p.open_children, p.assignee_id, e.n,
      coalesce(p.failing_child_id, e.failing_child_id) as failing_child_id,
      e.any_failed and p.failure_tolerance is not null as judge
    from ended e join ${t.job} p on p.id = e.parent_id
    order by p.depth desc, p.id
    for no key update of p
  ),
  counted as (
    update ${t.job} j
    set open_children = ${added('p.open_children', '-p.n')}, failing_child_id = p.failing_child_id
    from parent p
    where j.id = p.id
      and not (p.state = 'waiting' and p.open_children <= p.n and p.failing_child_id is null and not p.judge)
  )
  select 'moved' as what, id, null as state, null::int as open_children, null::uuid as failing_child_id,
    null as assignee_id, null::boolean as judge
  from done
  union all
  select 'other', id, null, null, null, null, null from move where id not in (select id from done)
  union all
  select 'parent', id, state, ${added('open_children', '-n')}, failing_child_id, assignee_id, judge from parent`,
  { prepared: true },
)
