import type { Database } from '../db/database.ts'
import { statement, type TableNames } from '../db/statement.ts'
import type { JobTable } from '../db/tables.ts'
import { transaction } from '../db/transaction.ts'
import { EngineError } from './errors.ts'
import { insertEvents } from './event-sql.ts'
import { formatId } from './ids.ts'
import { type Job, jobFromRow } from './job.ts'

/** A job held by one attempt. */
export interface ClaimedJob extends Job {
  claimToken: string
}

/** What a worker asks for. */
export interface ClaimRequest {
  workerId: string
  /** Only these, so that a type unknown here blocks nobody. */
  types: readonly string[]
  /** Null: all. */
  queues: readonly string[] | null
  limit: number
}

/** The worker was declared dead, or its row is gone: it must drop what it holds and take a new incarnation. */
export class WorkerDeadError extends EngineError {
  readonly code = 'WORKER_DEAD'

  constructor(workerId: string) {
    super(`Worker WK_${workerId} was declared dead: its claims are refused.`)
  }
}

/**
 * Claims up to `limit` jobs: QUEUED becomes RUNNING under a fresh claim token, in order of queue, priority, runAt, id.
 * Takes no tree lock, and skips what others hold.
 *
 * @throws {WorkerDeadError} when the worker may not claim any more.
 */
export async function claimJobs(db: Database, request: ClaimRequest): Promise<ClaimedJob[]> {
  const { workerId, types, queues, limit } = request
  const rows = await transaction(db, async (tx) => {
    const parameters = [workerId, formatId('WK', workerId), types, limit]
    const claimed = queues
      ? await tx.query(claimFromQueues, [...parameters, queues])
      : await tx.query(claimFromAnyQueue, parameters)
    if (claimed.length === 0 && (await tx.query(isAlive, [workerId])).length === 0) throw new WorkerDeadError(workerId)
    return claimed
  })
  return rows.map((row) => jobFromRow(row) as ClaimedJob).sort(inOrderOfClaiming)
}

function inOrderOfClaiming(a: ClaimedJob, b: ClaimedJob): number {
  if (a.queue !== b.queue) return a.queue < b.queue ? -1 : 1
  return a.priority - b.priority || a.runAt.getTime() - b.runAt.getTime() || (a.id < b.id ? -1 : 1)
}

const isAlive = statement('claim.worker-alive', (t) => `select id from ${t.worker} where id = $1 and dead_at is null`)

const READY = `j.state = 'queued' and j.archived_at is null`

/** The first (type, queue, priority) of each known type, over all queues or over those served. */
const FIRST_KINDS = {
  any: (t: TableNames) => `
    select first.type, first.queue, first.priority
    from unnest($3::text[]) known(type)
    cross join lateral (
      select j.type, j.queue, j.priority from ${t.job} j where ${READY} and j.type = known.type
      order by j.queue, j.priority limit 1) first`,
  served: (t: TableNames) => `
    select first.type, first.queue, first.priority
    from unnest($3::text[]) known(type) cross join unnest($5::text[]) served(queue)
    cross join lateral (
      select j.type, j.queue, j.priority from ${t.job} j
      where ${READY} and j.type = known.type and j.queue = served.queue
      order by j.priority limit 1) first`,
}

const NEXT_KIND = {
  any: `(j.queue, j.priority) > (kind.queue, kind.priority) order by j.queue, j.priority`,
  served: `j.queue = kind.queue and j.priority > kind.priority order by j.priority`,
}

// One index probe for each (type, queue, priority) that has queued jobs, found by skipping through the index. Twice the
// limit is looked at, so that two workers that claim at the same moment do not both come away with half. Candidates are
// locked one by one through the primary key, in their order: joined as sets, the planner reads the whole queue instead.
function claimText(t: TableNames, which: 'any' | 'served'): string {
  return `
  with recursive kind(type, queue, priority) as (
    (${FIRST_KINDS[which](t)})
    union all
    select next.type, next.queue, next.priority from kind
    cross join lateral (
      select j.type, j.queue, j.priority from ${t.job} j
      where ${READY} and j.type = kind.type and ${NEXT_KIND[which]} limit 1) next
  ),
  candidate as materialized (
    select c.* from kind
    cross join lateral (
      select j.id, j.queue, j.priority, j.run_at from ${t.job} j
      where ${READY} and j.type = kind.type and j.queue = kind.queue and j.priority = kind.priority
        and j.run_at <= now()
        and (j.assignee_id is null
          or exists (select from ${t.assignee} a where a.id = j.assignee_id and a.status = 'active'))
      order by j.run_at, j.id limit $4 * 2) c
    order by c.queue, c.priority, c.run_at, c.id limit $4 * 2
  ),
  locked as materialized (
    select l.id from candidate c
    cross join lateral (
      select j.id from ${t.job} j where j.id = c.id and ${READY} and j.run_at <= now()
      for no key update skip locked) l
    limit $4
  ),
  claimed as (
    update ${t.job} j
    set state = 'running', worker_id = $1, claim_token = gen_random_uuid(), claimed_at = now(),
      attempt = j.attempt + 1, children_reopened = false, started_at = coalesce(j.started_at, now()),
      version = j.version + 1, updated_at = now()
    where j.id = any(array(select id from locked)) and j.state = 'queued'
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
  select * from claimed`
}

const claimFromAnyQueue = statement<JobTable>('claim.any-queue', (t) => claimText(t, 'any'))
const claimFromQueues = statement<JobTable>('claim.queues', (t) => claimText(t, 'served'))
