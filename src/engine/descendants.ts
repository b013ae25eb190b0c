import { statement } from '../db/statement.ts'
import type { Tx } from '../db/transaction.ts'
import { refuseCycle } from './descent.ts'
import { insertEvents } from './event-sql.ts'
import type { CancelCode } from './job.ts'
import { ACTIVE_SQL, isTerminal, type JobState } from './states.ts'

/** Most rows that one statement of a cascade writes. */
const CASCADE_CHUNK = 10_000

/**
 * Cancels every active descendant of these jobs and returns how many; open counters below it become 0.
 *
 * @throws {JobCycleError}
 */
export async function cancelDescendants(
  tx: Tx,
  ids: readonly string[],
  why: { reason: string; code: CancelCode },
  actor: string,
): Promise<number> {
  let cancelled = 0
  for (let level = ids; level.length > 0; ) {
    const next: string[] = []
    for (const parents of chunks(level)) {
      const rows = await tx.query(lockLevel, [parents])
      refuseCycle(ids, rows)
      const active = rows.filter((row) => !isTerminal(row.state as JobState)).map((row) => row.id)
      for (const ids of chunks(active)) cancelled += await cancelRows(tx, ids, why, actor, false)
      // A terminal parent that kept its children counts them still; they have just been cancelled.
      const counting = rows.filter((row) => isTerminal(row.state as JobState) && row.open_children !== 0)
      if (counting.length > 0) await tx.query(zeroCounters, [counting.map((row) => row.id)])
      for (const row of rows) next.push(row.id)
    }
    level = next
  }
  return cancelled
}

/** Cancels jobs of one parent whose rows this transaction has locked, with their descendants; returns how many. */
export async function cancelSubtrees(
  tx: Tx,
  ids: readonly string[],
  why: { reason: string; code: CancelCode },
  actor: string,
): Promise<number> {
  let cancelled = 0
  for (const some of chunks(ids)) cancelled += await cancelRows(tx, some, why, actor, false)
  return cancelled + (await cancelDescendants(tx, ids, why, actor))
}

/** Cancels jobs whose rows this transaction has locked; returns how many were active. */
export async function cancelRows(
  tx: Tx,
  ids: readonly string[],
  why: { reason: string; code: CancelCode },
  actor: string,
  keepsChildren: boolean,
): Promise<number> {
  const rows = await tx.query(cancelStatement, [ids, actor, why.reason, why.code, keepsChildren])
  return rows.length
}

function* chunks(ids: readonly string[]): Generator<readonly string[]> {
  for (let start = 0; start < ids.length; start += CASCADE_CHUNK) yield ids.slice(start, start + CASCADE_CHUNK)
}

const lockLevel = statement<{ id: string; state: string; open_children: number }>(
  'cascade.lock-level',
  (t) => `
  select id, state, open_children from ${t.job} where parent_id = any($1::uuid[])
  order by id for no key update`,
)

const zeroCounters = statement(
  'cascade.zero-counters',
  (t) => `update ${t.job} set open_children = 0 where id = any($1::uuid[])`,
)

// The rows are locked already: their states are what they were when they were chosen.
const cancelStatement = statement<{ id: string }>(
  'cascade.cancel',
  (t) => `
  with before as (select id, state from ${t.job} where id = any($1::uuid[]) and state in (${ACTIVE_SQL})),
  cancelled as (
    update ${t.job} j
    set state = 'cancelled', cancel_reason = $3, cancel_code = $4,
      open_children = case when $5 then j.open_children else 0 end,
      completion_epoch = j.completion_epoch + 1, finished_at = now(), paused_from = null,
      -- Kept by a job that ends while it waits: a retry lets it wait again.
      waiting_since = case when 'waiting' in (j.state, j.paused_from) then j.waiting_since end,
      pause_requested = false, failing_child_id = null, version = j.version + 1, updated_at = now()
    from before b where j.id = b.id and j.state = b.state
    returning j.*, b.state as was
  )
  ${insertEvents(t)}
  select 'moved', id, tree_id, parent_id, type, was, state, phase, wave, attempt, version, $2, $3,
    jsonb_build_object('cancelCode', upper($4))
  from cancelled
  returning job_id as id`,
)
