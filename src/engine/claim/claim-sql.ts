import { type TableNames, unindexed } from '../../db/statement.ts'
import { insertEvents } from '../event-sql.ts'
import { CLAIMED_COLUMNS } from './claimed-job.ts'

/*
 * What the statements that claim have in common. Each begins with common table expressions of its own, down to
 * `locked(place)`, and ends with `claimLocked`. $1 is the worker, $2 its name, $3 the types without a limit, $4 the most
 * jobs to claim.
 */

/** A job that is queued and in sight. */
export const READY = `j.state = 'queued' and j.archived_at is null`

/** Nobody keeps it from running now. */
export function mayRun(t: TableNames): string {
  return `j.run_at <= now()
        and (j.assignee_id is null
          or exists (select from ${t.assignee} a where a.id = j.assignee_id and a.status = 'active'))`
}

/**
 * Locks the one candidate of a row `c`, through the primary key, and says where its row is; nothing if somebody holds it
 * or it has gone on.
 */
export function lockCandidate(t: TableNames): string {
  return `
      select j.ctid as place from ${t.job} j where j.id = c.id and ${unindexed(READY)} and j.run_at <= now()
      for no key update skip locked`
}

/** The first (type, queue, priority) of each type of $3, over all queues or over those of the parameter `queues`. */
function firstKinds(t: TableNames, queues: string | null): string {
  if (queues === null) {
    return `
    select first.type, first.queue, first.priority
    from unnest($3::text[]) known(type)
    cross join lateral (
      select j.type, j.queue, j.priority from ${t.job} j where ${READY} and j.type = known.type
      order by j.queue, j.priority limit 1) first`
  }
  return `
    select first.type, first.queue, first.priority
    from unnest($3::text[]) known(type) cross join unnest(${queues}::text[]) served(queue)
    cross join lateral (
      select j.type, j.queue, j.priority from ${t.job} j
      where ${READY} and j.type = known.type and j.queue = served.queue
      order by j.priority limit 1) first`
}

/**
 * `kind` and `candidate`, to follow `with recursive`: one index probe for each (type, queue, priority) that has queued
 * jobs, found by skipping through the index. Twice the limit is looked at, so that two workers that claim at the same
 * moment do not both come away with half.
 */
export function candidatesOfTypes(t: TableNames, queues: string | null): string {
  const next =
    queues === null
      ? '(j.queue, j.priority) > (kind.queue, kind.priority) order by j.queue, j.priority'
      : 'j.queue = kind.queue and j.priority > kind.priority order by j.priority'
  return `
  kind(type, queue, priority) as (
    (${firstKinds(t, queues)})
    union all
    select next.type, next.queue, next.priority from kind
    cross join lateral (
      select j.type, j.queue, j.priority from ${t.job} j
      where ${READY} and j.type = kind.type and ${next} limit 1) next
  ),
  candidate as materialized (
    select c.* from kind
    cross join lateral (
      select j.id, j.queue, j.priority, j.run_at from ${t.job} j
      where ${READY} and j.type = kind.type and j.queue = kind.queue and j.priority = kind.priority
        and ${mayRun(t)}
      order by j.run_at, j.id limit $4 * 2) c
    order by c.queue, c.priority, c.run_at, c.id limit $4 * 2
  )`
}

/** The end: what `locked(place)` holds is claimed, in that order; receipts say so, and events are written. */
export function claimLocked(t: TableNames): string {
  return `
  claimed as (
    update ${t.job} j
    set state = 'running', worker_id = $1, claim_token = gen_random_uuid(), claimed_at = now(),
      attempt = j.attempt + 1, started_at = coalesce(j.started_at, now()),
      -- What was added to a parent that ingests is still there when it ingests again.
      children_reopened = j.children_reopened and j.phase = 'ingest',
      version = j.version + 1, updated_at = now()
    where j.ctid = any(array(select place from locked)) and ${unindexed(`j.state = 'queued'`)}
      and exists (select from ${t.worker} w where w.id = $1 and w.dead_at is null)
    returning j.*
  ),
  receipt as (
    update ${t.wakeReceipt} r set delivered_attempt = c.attempt from claimed c
    where r.parent_id = c.id and c.phase = 'aggregate' and r.delivered_attempt is null
  ),
  event as (
    ${insertEvents(t)}
    select 'moved', id, tree_id, parent_id, type, 'queued', 'running', phase, wave, attempt, version, $2, null, null
    from claimed
  )
  select ${CLAIMED_COLUMNS} from claimed order by queue, priority, run_at, id`
}
