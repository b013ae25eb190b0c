import type { Database } from '../src/db/database.ts'
import { statement } from '../src/db/statement.ts'

// A large table as an installation gets it over a month: flat jobs of several types, one wide fan-out, some that failed
// long ago, some labels, keys and assignees, and a queue of jobs that wait for their turn.

const START = Date.UTC(2026, 0, 1)
const MONTH = 30 * 24 * 3_600_000

/** What to look for in it. */
export const LARGE = {
  /** Root of a tree with a tenth of the jobs as its children. */
  root: '0199aaaa-0000-7000-8000-000000000000',
  worker: '0199bbbb-0000-7000-8000-000000000000',
  /** The instant before which a share of the jobs was enqueued. */
  instant: (share: number) => new Date(START + share * MONTH),
}

/** Fills an empty table with so many jobs, evenly over a month, and takes statistics; one that has jobs stays as it is. */
export async function fillWithJobs(db: Database, jobs: number): Promise<void> {
  const [found] = await db.query(anyJob)
  if (found) return
  const size = 100_000
  for (let from = 0; from < jobs; from += size) {
    await db.query(insertJobs, [from, Math.min(from + size, jobs), jobs, START, MONTH, LARGE.root, LARGE.worker])
  }
  await db.query(insertRoot, [LARGE.root, START])
  for (const vacuum of [vacuumJobs, vacuumEvents]) await db.query(vacuum)
}

const anyJob = statement<{ id: string }>('large.any', (t) => `select id from ${t.job} limit 1`)
const vacuumJobs = statement('large.vacuum', (t) => `vacuum analyze ${t.job}`)
const vacuumEvents = statement('large.vacuum-events', (t) => `vacuum analyze ${t.jobEvent}`)

// Every tenth is a child of the one root. What is rare is also old: the worst for a list that begins with the newest.
const insertJobs = statement(
  'large.insert',
  (t) => `
  with numbered as (
    select n, n::float8 / $3 as share, n % 10 = 3 as child,
      to_timestamp(($4::float8 + n::float8 / $3 * $5::float8) / 1000) as at
    from generate_series($1::int, $2::int - 1) n
  ),
  dated as (
    select *, (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7000' || '8000' || lpad(to_hex(n), 12, '0'))::uuid as id
    from numbered
  )
  insert into ${t.job} (id, tree_id, parent_id, parent_wave, depth, type, queue, state, key, metadata, assignee_id, worker_id,
    attempt, error, error_code, cancel_code, archived_at, run_at, created_at, updated_at, started_at, finished_at, payload)
  select id, case when child then $6::uuid else id end, case when child then $6::uuid end, case when child then 1 end,
    child::int,
    case when n % 50 = 7 and share < 0.1 then 'rare' else 'type-' || n % 20 end,
    case when n % 20 < 4 then 'slow' else 'default' end,
    case
      when share > 0.9998 then 'running'
      when share > 0.95 then 'queued'
      when share < 0.2 and n % 200 = 3 then 'failed'
      when share < 0.2 and n % 200 = 5 then 'cancelled'
      else 'completed' end,
    case when n % 5 = 0 then 'key-' || n end,
    case when n = $3 / 3 then '{"ticket":4711}' when n % 4 = 0 then '{"page":"home"}' else '{}' end::jsonb,
    case when n % 100 = 11 then 'ann' end,
    case when share > 0.9998 then $7::uuid end,
    case when share > 0.95 then 0 else 1 end,
    case when share < 0.2 and n % 200 = 3 then 'Connection refused' end,
    case when share < 0.2 and n % 200 = 3 then 'NETWORK' end,
    case when share < 0.2 and n % 200 = 5 then 'requested' end,
    case when share < 0.1 and n % 1000 = 9 then at end,
    at, at, at, case when share <= 0.95 then at end,
    case when share <= 0.95 then at end, '{"path":"somewhere/in/a/folder"}'
  from dated`,
)

const insertRoot = statement(
  'large.insert-root',
  (t) => `
  insert into ${t.job} (id, tree_id, type, state, child_count, open_children, waiting_since, created_at)
  select $1::uuid, $1::uuid, 'fan-out', 'waiting', count(*), count(*) filter (where state in ('queued', 'running')), now(),
    to_timestamp($2::float8 / 1000)
  from ${t.job} where parent_id = $1::uuid`,
)
