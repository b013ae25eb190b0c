import type { Database, Queryable } from '../db/database.ts'
import { statement, unindexed } from '../db/statement.ts'
import type { JobTable } from '../db/tables.ts'
import { type Tx, transaction } from '../db/transaction.ts'
import { childSets } from './child-set.ts'
import { insertEvents } from './event-sql.ts'
import type { WakeSource } from './job.ts'
import { findPlace, lockJobs, lockTreeShared } from './locks.ts'
import { edgeWakesAreOff, wakeWatchOf } from './wake-watch.ts'

/** A parent that may be due: its row is locked by this transaction (or was written by it). */
export interface WakeCandidate {
  id: string
  assigneeId: string | null
  /** The child set key that it was found by, before its lock was taken; it is woken for no other. */
  expectedKey?: string
}

/** A transaction of ours, or one that a user has open, whose commit is not ours to see. */
export type WakeTx = Queryable & Partial<Pick<Tx, 'db' | 'afterCommit'>>

/** Who wakes, and whether open children are passed over. */
export interface WakeOptions {
  source: WakeSource
  actor: string
  /** Wake with children open: for a wait timeout and by hand. */
  forced?: boolean
  /** For a child set that was delivered before: receipt and event say that it was forced. */
  again?: boolean
  /** Why, for the event, in place of what was found. */
  reason?: string
}

/** What became of one candidate. Candidates that do not wait (any more), are archived or are to fail are left out. */
export interface WakeOutcome {
  id: string
  treeId: string
  /**
   * `open`: children are open, and a wrong counter was put right; `withheld`: its assignee is not active; `superseded`:
   * its child set is not the expected one.
   */
  outcome: 'woken' | 'open' | 'withheld' | 'superseded'
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
  tx: WakeTx,
  candidates: readonly WakeCandidate[],
  options: WakeOptions,
): Promise<WakeOutcome[]> {
  if (candidates.length === 0) return []
  const assignees = new Set(candidates.map((candidate) => candidate.assigneeId).filter((id) => id !== null))
  if (assignees.size > 0) await tx.query(lockAssignees, [[...assignees].sort()])
  const asked = performance.now()
  const expected = candidates.map((candidate) => candidate.expectedKey ?? null)
  const outcomes = await tx.query(wake, [
    candidates.map((candidate) => candidate.id),
    options.source,
    options.actor,
    options.forced ?? false,
    expected.some((key) => key !== null) ? expected : null,
    options.again ?? false,
    options.reason ?? null,
  ])
  tellWoken(tx, outcomes, options.source, performance.now() - asked)
  return outcomes
}

function tellWoken(tx: WakeTx, outcomes: readonly WakeOutcome[], source: WakeSource, ms: number): void {
  const watch = tx.db && wakeWatchOf(tx.db)
  if (!watch) return
  const woken = outcomes.filter((wake) => wake.outcome === 'woken')
  if (woken.length === 0) return
  tx.afterCommit?.(() =>
    watch(woken.map(({ id, open, ...wake }) => ({ ...wake, parentId: id, source, openChildren: open, ms }))),
  )
}

/** Wakes, as the edge does, those of the candidates that are due; returns their ids. */
export async function wakeAtEdge(tx: WakeTx, candidates: readonly WakeCandidate[], actor: string): Promise<string[]> {
  if (tx.db && edgeWakesAreOff(tx.db)) return []
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
  options: WakeOptions & Pick<WakeCandidate, 'expectedKey'> & { provided?: (row: JobTable) => boolean },
): Promise<WakeOutcome | undefined> {
  return transaction(db, async (tx) => {
    const [found] = await tx.query(findPlace, [id])
    if (!found) return undefined
    await lockTreeShared(tx, found.tree_id)
    const row = (await lockJobs(tx, [id])).get(id)
    if (!row || options.provided?.(row) === false) return undefined
    const { expectedKey, provided: _, ...how } = options
    const candidate = { id, assigneeId: row.assignee_id, ...(expectedKey !== undefined && { expectedKey }) }
    const [outcome] = await wakeParents(tx, [candidate], how)
    return outcome
  })
}

const lockAssignees = statement(
  'wake.lock-assignees',
  (t) => `select id from ${t.assignee} where id = any($1::text[]) order by id for share`,
)

const wake = statement<WakeOutcome>(
  'wake',
  (t) => `
  with ${childSets(t)},
  due as (
    select s.*, $5::text[] is not null
      and coalesce(s.child_set_key <> ($5::text[])[array_position($1::uuid[], s.id)], false) as superseded
    from child_set s
  ),
  woken as (
    update ${t.job} j
    set state = 'queued', phase = 'aggregate', wave = d.wave, retry_count = 0, run_at = now(), open_children = d.open,
      waiting_since = null, children_reopened = false, version = j.version + 1, updated_at = now()
    from due d
    where j.id = d.id and ${unindexed(`j.state = 'waiting'`)} and not d.superseded and (d.open = 0 or $4::boolean)
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
    select id, child_set_key, operation_id, wave, $2, open > 0 or $6::boolean from woken
    on conflict (parent_id) do update
    set child_set_key = excluded.child_set_key, operation_id = excluded.operation_id, wave = excluded.wave,
      source = excluded.source, forced = excluded.forced, delivered_attempt = null, at = clock_timestamp()
  ),
  event as (
    ${insertEvents(t)}
    select 'moved', id, tree_id, parent_id, type, 'waiting', 'queued', phase, wave, attempt, version, $3,
      coalesce($7::text, case when open = 0 then 'children settled' else 'woken with open children' end),
      jsonb_build_object('source', $2::text, 'operationId', operation_id, 'childSetKey', child_set_key,
        'forced', open > 0 or $6::boolean)
    from woken
  )
  select d.id, d.tree_id as "treeId", d.open, d.wave, d.operation_id as "operationId",
    d.open_children::float8 - d.open as drift,
    case when w.id is not null then 'woken' when d.superseded then 'superseded' when d.open > 0 then 'open'
      else 'withheld' end as outcome
  from due d left join woken w on w.id = d.id`,
  { prepared: true },
)
