import { statement } from '../../db/statement.ts'

// Each runs by itself, outside a transaction block, unnamed on the wire, so that it holds through a pooler.

/** Adds the worker's row; again does no harm. */
export const register = statement(
  'lease.register',
  (t) => `
  insert into ${t.worker} (id, host, pid, queues, types, concurrency, beat_interval, schema_version)
  values ($1, $2, $3, $4, $5, $6, $7, $8)
  on conflict (id) do nothing`,
)

/** What one beat returns. */
export interface BeatRow {
  /** False: the own row is dead or gone. */
  alive: boolean
  others: { id: string; beat: string; intervalMs: number; dead: boolean }[]
  held: { jobId: string; claimToken: string }[]
  newestSchema: number
}

/** Beats, and looks: at all other workers and at the jobs that this one holds. */
export const beat = statement<BeatRow>(
  'lease.beat',
  (t) => `
  with own as (
    update ${t.worker} set beat = beat + 1, heartbeat_at = now(), stopping = stopping or $2
    where id = $1 and dead_at is null
    returning id
  )
  select exists (select from own) as alive,
    (select coalesce(json_agg(json_build_object(
        'id', w.id, 'beat', w.beat::text, 'intervalMs', w.beat_interval, 'dead', w.dead_at is not null)), '[]')
      from ${t.worker} w where w.id <> $1) as others,
    (select coalesce(json_agg(json_build_object('jobId', j.id, 'claimToken', j.claim_token)), '[]')
      from ${t.job} j where j.worker_id = $1 and j.state = 'running') as held,
    (select coalesce(max(m.version), 0) from ${t.migration} m) as "newestSchema"`,
)

/**
 * Declares workers dead that still stand at the beat where they were seen. Locks their rows in order of id and skips
 * those that are locked: they beat, or another observer is at it.
 */
export const declareDead = statement<{ id: string }>(
  'lease.declare-dead',
  (t) => `
  with still as materialized (
    select w.id from ${t.worker} w
    join unnest($1::uuid[], $2::bigint[]) seen(id, beat) on seen.id = w.id and seen.beat = w.beat
    where w.dead_at is null
    order by w.id for no key update of w skip locked
  )
  update ${t.worker} w set dead_at = now() from still where w.id = still.id returning w.id`,
)

/** Takes the own row away, if no job names it any more. */
export const remove = statement<{ id: string }>(
  'lease.remove',
  (t) => `
  delete from ${t.worker} w where w.id = $1
    and not exists (select from ${t.job} j where j.worker_id = w.id and j.state = 'running')
  returning w.id`,
)

/** Marks the own row dead, so that what it holds goes back at once. */
export const resign = statement(
  'lease.resign',
  (t) => `update ${t.worker} set dead_at = now() where id = $1 and dead_at is null`,
)
