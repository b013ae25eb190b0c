import { statement } from '../../db/statement.ts'
import type { Tx } from '../../db/transaction.ts'
import { added } from '../counter-sql.ts'
import { insertEvents } from '../event-sql.ts'
import { TERMINAL_SQL } from '../states.ts'
import { wakeAtEdge } from '../wake.ts'
import { type Move, moveColumns } from './outcome-move.ts'
import { judgeTolerance } from './tolerance.ts'

/** What happens to one locked row: a move of its own, the end of some of its children, or both at once. */
export interface RowChange {
  id: string
  move: Move | null
  /** How many of its open children ended. */
  ended: number
  /** One of them whose failure it does not bear. */
  failingChildId: string | null
  /** One of them failed in a way that counts against a failure tolerance. */
  anyFailed?: boolean
}

/** A row after its change. */
export interface ChangedRow {
  id: string
  state: string
  open_children: number
  failing_child_id: string | null
  assignee_id: string | null
  /** Its failed children are to be counted against its failure tolerance. */
  judge: boolean
}

/** Applies changes to rows that this transaction holds locked; moves write their events. One update a row. */
export async function applyMoves(tx: Tx, changes: readonly RowChange[], actor: string): Promise<ChangedRow[]> {
  if (changes.length === 0) return []
  const moves = changes.map((change) => change.move ?? NO_MOVE)
  return tx.query(applyChanges, [
    actor,
    changes.map((change) => change.id),
    changes.map((change) => change.ended),
    changes.map((change) => change.failingChildId),
    changes.map((change) => change.anyFailed ?? false),
    ...moveColumns(moves as Move[]).slice(2),
  ])
}

/**
 * After children were settled under their locks: judges failure tolerances, wakes the parents that are due, and names
 * those that are to fail.
 */
export async function wakeSettled(
  tx: Tx,
  settled: readonly ChangedRow[],
  actor: string,
): Promise<{ woken: string[]; failing: string[] }> {
  const rows = await judgeTolerance(tx, settled)
  const due = rows.filter((row) => row.state === 'waiting' && row.open_children <= 0 && row.failing_child_id === null)
  const candidates = due.map((row) => ({ id: row.id, assigneeId: row.assignee_id }))
  return {
    woken: await wakeAtEdge(tx, candidates, actor),
    failing: rows
      .filter((row) => row.failing_child_id !== null && ['queued', 'waiting', 'paused'].includes(row.state))
      .map((row) => row.id),
  }
}

const NO_MOVE = {
  to: null,
  result: null,
  error: null,
  errorCode: null,
  errorStack: null,
  delay: 0,
  spend: 0,
  reason: null,
  detail: null,
}

const applyChanges = statement<ChangedRow>(
  'settle.apply-changes',
  (t) => `
  with change as (
    select * from unnest($2::uuid[], $3::int[], $4::uuid[], $5::boolean[], $6::text[], $7::text[], $8::text[], $9::text[],
      $10::text[], $11::float8[], $12::int[], $13::text[], $14::text[])
      as c(id, ended, failing_child_id, any_failed, "to", result, error, error_code, error_stack, delay, spend, reason, detail)
  ),
  changed as (
    update ${t.job} j
    set state = case
        when c."to" is null then j.state
        when c."to" in ('queued', 'waiting') and j.pause_requested then 'paused'
        else c."to" end,
      paused_from = case
        when c."to" is null then j.paused_from
        when c."to" in ('queued', 'waiting') and j.pause_requested then c."to" end,
      pause_requested = j.pause_requested and c."to" is null,
      open_children = ${added('j.open_children', '-c.ended::bigint')},
      failing_child_id = coalesce(j.failing_child_id, c.failing_child_id),
      result = case when c."to" = 'completed' then c.result::jsonb
        when c."to" = 'waiting' and j.phase = 'ingest' then c.result::jsonb else j.result end,
      error = coalesce(c.error, j.error),
      error_code = coalesce(c.error_code, j.error_code),
      error_stack = case when c.error is null then j.error_stack else c.error_stack end,
      retry_count = j.retry_count + c.spend,
      run_at = case when c."to" = 'queued' then now() + c.delay * interval '1 millisecond' else j.run_at end,
      completion_epoch = j.completion_epoch + (coalesce(c."to", '') in (${TERMINAL_SQL}))::int,
      finished_at = case when c."to" is null then j.finished_at when c."to" in (${TERMINAL_SQL}) then now() end,
      waiting_since = case when c."to" is null then j.waiting_since when c."to" = 'waiting' then now() end,
      version = j.version + (c."to" is not null)::int,
      updated_at = case when c."to" is null then j.updated_at else now() end
    from change c
    where j.id = c.id and j.id = any($2::uuid[]) and (c."to" is null or j.state = 'running')
    returning j.*, c."to" as moved_to, c.reason, c.detail, c.any_failed
  ),
  event as (
    ${insertEvents(t)}
    select 'moved', id, tree_id, parent_id, type, 'running', state, phase, wave, attempt, version, $1, reason,
      detail::jsonb
    from changed where moved_to is not null
  )
  select id, state, open_children, failing_child_id, assignee_id,
    failure_tolerance is not null and (any_failed or moved_to = 'waiting') as judge
  from changed`,
  { prepared: true },
)
