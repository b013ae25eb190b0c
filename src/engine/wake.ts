import type { Database, Queryable } from '../db/database.ts'
import { statement } from '../db/statement.ts'
import type { JobTable } from '../db/tables.ts'
import { transaction } from '../db/transaction.ts'
import { insertEvents } from './event-sql.ts'
import type { WakeSource } from './job.ts'
import { findPlace, lockJobs, lockTreeShared } from './locks.ts'
import { ACTIVE_SQL } from './states.ts'

/** A parent that may be due: its row is locked by this transaction (or was written by it). */
export interface WakeCandidate {
  id: string
  assigneeId: string | null
}

/** Who wakes, and whether open children are passed over. */
export interface WakeOptions {
  source: WakeSource
  actor: string
  /** Wake with children open: for a wait timeout and by hand. */
  forced?: boolean
}

/** What became of one candidate. Candidates that do not wait (any more), are archived or are to fail are left out. */
export interface WakeOutcome {
  id: string
  /** `open`: children are open, and a wrong counter was put right; `withheld`: its assignee is not active. */
  outcome: 'woken' | 'open' | 'withheld'
  open: number
  wave: number
  operationId: string
  drift: number
}

/**
 * The one place that wakes a parent: WAITING becomes QUEUED in phase AGGREGATE, wave + 1, with receipt and event, if its
 * children's rows prove that none is open. The caller holds the parents' row locks from an earlier statement, so that
 * this one's snapshot sees every child that was settled under them. The move is the only fence: a receipt withholds
 * nothing. Locks: assignee rows, for share, so that an activation is either seen here or sees the parent waiting.
 */
export async function wakeParents(
  tx: Queryable,
  candidates: readonly WakeCandidate[],
  options: WakeOptions,
): Promise<WakeOutcome[]> {
  if (candidates.length === 0) return []
  const assignees = new Set(candidates.map((candidate) => candidate.assigneeId).filter((id) => id !== null))
  if (assignees.size > 0) await tx.query(lockAssignees, [[...assignees].sort()])
  return tx.query(wake, [
    candidates.map((candidate) => candidate.id),
    options.source,
    options.actor,
    options.forced ?? false,
  ])
}

/** Wakes, as the edge does, those of the candidates that are due; returns their ids. */
export async function wakeAtEdge(
  tx: Queryable,
  candidates: readonly WakeCandidate[],
  actor: string,
): Promise<string[]> {
  const outcomes = await wakeParents(tx, candidates, { source: 'edge', actor })
  return outcomes.filter((wake) => wake.outcome === 'woken').map((wake) => wake.id)
}

/**
 * Wakes one parent in a transaction of its own: for verbs that find it rather than settle its children. Undefined: it
 * does not wait (any more), is archived, or is to fail; or its row, under its lock, is not as it has to be.
 */
export async function wakeParent(
  db: Database,
  id: string,
  options: WakeOptions & { provided?: (row: JobTable) => boolean },
): Promise<WakeOutcome | undefined> {
  return transaction(db, async (tx) => {
    const [found] = await tx.query(findPlace, [id])
    if (!found) return undefined
    await lockTreeShared(tx, found.tree_id)
    const row = (await lockJobs(tx, [id])).get(id)
    if (!row || options.provided?.(row) === false) return undefined
    const [outcome] = await wakeParents(tx, [{ id, assigneeId: row.assignee_id }], options)
    return outcome
  })
}

const lockAssignees = statement(
  'wake.lock-assignees',
  (t) => `select id from ${t.assignee} where id = any($1::text[]) order by id for share`,
)

// Child set key: SHA-256 over the wave being delivered and a line for each member, in order of id: id, state and
// completion epoch. Operation id: SHA-256 over parent id, NUL, key, behind a fixed prefix.
const wake = statement<WakeOutcome>(
  'wake',
  (t) => `
  with parent as materialized (
    select p.id, p.open_children, greatest(p.wave, coalesce(r.wave, 0)) + 1 as wave
    from ${t.job} p
    left join ${t.wakeReceipt} r on r.parent_id = p.id
    where p.id = any($1::uuid[]) and p.state = 'waiting' and p.archived_at is null and p.failing_child_id is null
  ),
  members as (
    select p.id, p.wave, p.open_children,
      count(c.id) filter (where c.state in (${ACTIVE_SQL}))::int as open,
      encode(sha256(convert_to(p.wave::text || coalesce(
        string_agg(E'\\n' || c.id::text || ' ' || c.state || ' ' || c.completion_epoch::text, '' order by c.id), ''),
        'UTF8')), 'hex') as child_set_key
    from parent p
    left join ${t.job} c on c.parent_id = p.id and c.archived_at is null
    group by p.id, p.wave, p.open_children
  ),
  due as (
    select m.*, 'job_children_completed:' || m.id::text || ':' || encode(sha256(
      convert_to(m.id::text, 'UTF8') || '\\x00'::bytea || convert_to(m.child_set_key, 'UTF8')), 'hex') as operation_id
    from members m
  ),
  woken as (
    update ${t.job} j
    set state = 'queued', phase = 'aggregate', wave = d.wave, retry_count = 0, run_at = now(), open_children = d.open,
      waiting_since = null, children_reopened = false, version = j.version + 1, updated_at = now()
    from due d
    where j.id = d.id and j.state = 'waiting' and (d.open = 0 or $4)
      and (j.assignee_id is null
        or exists (select from ${t.assignee} a where a.id = j.assignee_id and a.status = 'active'))
    returning j.id, j.tree_id, j.parent_id, j.type, j.phase, j.wave, j.attempt, j.version,
      d.child_set_key, d.operation_id, d.open
  ),
  repaired as (
    update ${t.job} j set open_children = d.open from due d
    where j.id = d.id and j.open_children <> d.open and not exists (select from woken w where w.id = j.id)
  ),
  receipt as (
    insert into ${t.wakeReceipt} (parent_id, child_set_key, operation_id, wave, source, forced)
    select id, child_set_key, operation_id, wave, $2, open > 0 from woken
    on conflict (parent_id) do update
    set child_set_key = excluded.child_set_key, operation_id = excluded.operation_id, wave = excluded.wave,
      source = excluded.source, forced = excluded.forced, delivered_attempt = null, at = clock_timestamp()
  ),
  event as (
    ${insertEvents(t)}
    select 'moved', id, tree_id, parent_id, type, 'waiting', 'queued', phase, wave, attempt, version, $3,
      case when open = 0 then 'children settled' else 'woken with open children' end,
      jsonb_build_object('source', $2::text, 'operationId', operation_id, 'childSetKey', child_set_key,
        'forced', open > 0)
    from woken
  )
  select d.id, d.open, d.wave, d.operation_id as "operationId", d.open_children - d.open as drift,
    case when w.id is not null then 'woken' when d.open > 0 then 'open' else 'withheld' end as outcome
  from due d left join woken w on w.id = d.id`,
)
