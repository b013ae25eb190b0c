import { statement } from '../db/statement.ts'
import type { Tx } from '../db/transaction.ts'
import { added } from './counter-sql.ts'
import { insertEvents } from './event-sql.ts'
import type { ChangedRow } from './settle/apply-moves.ts'

/** A job whose phase has ended with children to wait for. Its row is locked, and held by the attempt that ended. */
export interface WaitStart {
  id: string
  /** Children written for it now. */
  created: number
  /** How many open children it gains: those, and such as were reopened. */
  opened: number
  /** The child set that it collects from now on. */
  spawnWave: number
  /** JSON text; null leaves the result as it is. */
  result: string | null
}

/** Moves jobs from RUNNING to WAITING (or to PAUSED, where that was asked for) and counts their new children. */
export async function startWaiting(tx: Tx, starts: readonly WaitStart[], actor: string): Promise<ChangedRow[]> {
  return tx.query(move, [
    actor,
    starts.map((start) => start.id),
    starts.map((start) => start.created),
    starts.map((start) => start.opened),
    starts.map((start) => start.spawnWave),
    starts.map((start) => start.result),
  ])
}

const move = statement<ChangedRow>(
  'spawn.start-waiting',
  (t) => `
  with start as (
    select * from unnest($2::uuid[], $3::int[], $4::int[], $5::int[], $6::text[])
      as s(id, created, opened, spawn_wave, result)
  ),
  moved as (
    update ${t.job} j
    set state = case when j.pause_requested then 'paused' else 'waiting' end,
      paused_from = case when j.pause_requested then 'waiting' end,
      pause_requested = false, child_count = ${added('j.child_count', 's.created')},
      open_children = ${added('j.open_children', 's.opened')},
      spawn_wave = s.spawn_wave, result = coalesce(s.result::jsonb, j.result), waiting_since = now(),
      version = j.version + 1, updated_at = now()
    from start s where j.id = s.id and j.id = any($2::uuid[])
    returning j.*, s.created
  ),
  event as (
    ${insertEvents(t)}
    select 'moved', id, tree_id, parent_id, type, 'running', state, phase, wave, attempt, version, $1, null,
      jsonb_build_object('spawned', created)
    from moved
  )
  select id, state, open_children, failing_child_id, assignee_id, failure_tolerance is not null as judge from moved`,
)
