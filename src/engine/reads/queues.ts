import type { Queryable } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import { LISTED } from './list-indexes.ts'
import { liveWorkers } from './workers.ts'

/** A queue that has jobs or workers. */
export interface Queue {
  name: string
  /** `runAt` of the oldest job that is due and not claimed; null if none. */
  oldestDueAt: Date | null
}

/** The queues that have jobs which are not archived, or that live workers name, by name. */
export async function queues(q: Queryable): Promise<Queue[]> {
  const due = new Map((await q.query(findOldestDue)).map((row) => [row.queue, row.run_at]))
  const names = new Set([...due.keys(), ...(await q.query(findQueues)).map((row) => row.queue)])
  for (const worker of await liveWorkers(q)) for (const queue of worker.queues) names.add(queue)
  return [...names].sort().map((name) => ({ name, oldestDueAt: due.get(name) ?? null }))
}

// Skips from queue to queue.
const findQueues = statement<{ queue: string }>(
  'reads.queues',
  (t) => `
  with recursive named(queue) as (
    (select j.queue from ${t.job} j where ${LISTED} order by j.queue limit 1)
    union all
    select next.queue from named cross join lateral (
      select j.queue from ${t.job} j where ${LISTED} and j.queue > named.queue order by j.queue limit 1) next
  )
  select queue from named
  union
  select queue from ${t.job} where state = 'running' and archived_at is null`,
)

// Skips through the index of claims: one probe for each (type, queue, priority) that has queued jobs.
const findOldestDue = statement<{ queue: string; run_at: Date }>(
  'reads.oldest-due',
  (t) => `
  with recursive kind(type, queue, priority) as (
    (select type, queue, priority from ${t.job} where state = 'queued' and archived_at is null
      order by type, queue, priority limit 1)
    union all
    select next.* from kind cross join lateral (
      select j.type, j.queue, j.priority from ${t.job} j
      where j.state = 'queued' and j.archived_at is null
        and (j.type, j.queue, j.priority) > (kind.type, kind.queue, kind.priority)
      order by j.type, j.queue, j.priority limit 1) next
  )
  select kind.queue, min(oldest.run_at) as run_at from kind cross join lateral (
    select j.run_at from ${t.job} j
    where j.type = kind.type and j.queue = kind.queue and j.priority = kind.priority
      and j.state = 'queued' and j.archived_at is null and j.run_at <= now()
    order by j.run_at, j.id limit 1) oldest
  group by kind.queue`,
)
