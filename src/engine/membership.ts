import { statement } from '../db/statement.ts'
import type { Tx } from '../db/transaction.ts'
import { added } from './counter-sql.ts'
import { insertEvents } from './event-sql.ts'

/** What a parent's child set gained. */
export interface Gain {
  /** New members, terminal or not. */
  members: number
  /** Members that are open now and were not. */
  opened: number
  /** All members and all open ones by their rows: the counters are set to that, whatever they were. */
  counted?: { members: number; open: number }
  /** The child set that they belong to, if it may be a new one. */
  spawnWave?: number
  /** A child that failed and is open again: the parent need not fail for it any more. */
  reopenedId?: string
  actor: string
  /** Why a wake is withdrawn, for the event. */
  reason: string
}

/**
 * Counts new or reopened members in their parent's row, which the caller holds locked. By the parent's state: one that
 * waits just counts them; one that was woken and not yet claimed goes back to WAITING, its wake withdrawn (paused ones
 * will, on resume); one that runs waits (again) where it would have ended; one that has ended counts on.
 */
export async function gainMembers(tx: Tx, parentId: string, gain: Gain): Promise<void> {
  await tx.query(countGain, [
    parentId,
    gain.members,
    gain.opened,
    gain.spawnWave ?? null,
    gain.actor,
    gain.reason,
    gain.reopenedId ?? null,
    gain.counted?.members ?? null,
    gain.counted?.open ?? null,
  ])
}

const countGain = statement(
  'membership.gain',
  (t) => `
  with before as (
    select id, state, phase = 'aggregate' and state in ('queued', 'paused') and paused_from is distinct from 'waiting'
      and $3::int > 0 as withdraws
    from ${t.job} where id = $1
  ),
  changed as (
    update ${t.job} j
    set child_count = coalesce($8::int, ${added('j.child_count', '$2::int')}),
      open_children = coalesce($9::int, ${added('j.open_children', '$3::int')}),
      spawn_wave = coalesce($4::int, j.spawn_wave),
      failing_child_id = case when j.failing_child_id = $7::uuid then null else j.failing_child_id end,
      state = case when b.withdraws and b.state = 'queued' then 'waiting' else j.state end,
      paused_from = case when b.withdraws and b.state = 'paused' then 'waiting' else j.paused_from end,
      waiting_since = case when b.withdraws then now() else j.waiting_since end,
      children_reopened = j.children_reopened or (b.state = 'running' and $3::int > 0),
      version = j.version + (b.withdraws and b.state = 'queued')::int, updated_at = now()
    from before b where j.id = b.id
    returning j.*, b.state as was
  )
  ${insertEvents(t)}
  select 'moved', id, tree_id, parent_id, type, was, state, phase, wave, attempt, version, $5, $6, null
  from changed where was <> state`,
)
