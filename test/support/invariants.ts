import type pg from 'pg'
import { ACTIVE_SQL, LEGAL_MOVES, TERMINAL_SQL } from '../../src/engine/states.ts'

/** One thing that must never be: its name, and rows that show it. */
export interface Violation {
  invariant: string
  rows: unknown[]
}

/** Legal moves as rows, with those of creation. */
const LEGAL = Object.entries(LEGAL_MOVES)
  .flatMap(([from, tos]) => tos.map((to) => `('${from}', '${to}')`))
  .join(', ')

/** What holds in every committed state, by name: each query returns the rows that break it. */
const ALWAYS: Record<string, (schema: string) => string> = {
  'open_children is the number of open members': (s) => `
    select p.id, p.state, p.open_children, count(c.id)::int as counted
    from ${s}.job p left join ${s}.job c
      on c.parent_id = p.id and c.archived_at is null and c.state in (${ACTIVE_SQL})
    group by p.id having p.open_children <> count(c.id)`,
  'child_count is the number of members': (s) => `
    select p.id, p.child_count, count(c.id)::int as counted
    from ${s}.job p left join ${s}.job c on c.parent_id = p.id and c.archived_at is null
    group by p.id having p.child_count <> count(c.id)`,
  'no parent waits with all its children settled': (s) => `
    select p.id, p.open_children from ${s}.job p
    left join ${s}.assignee a on a.id = p.assignee_id
    where p.state = 'waiting' and p.archived_at is null and p.failing_child_id is null
      and (p.assignee_id is null or a.status = 'active')
      and not exists (select from ${s}.job c
        where c.parent_id = p.id and c.archived_at is null and c.state in (${ACTIVE_SQL}))`,
  'no active job under a terminal or missing parent, unless it keeps its children': (s) => `
    select c.id, c.state, c.parent_id, p.state as parent_state from ${s}.job c
    left join ${s}.job p on p.id = c.parent_id
    where c.parent_id is not null and c.state in (${ACTIVE_SQL}) and c.archived_at is null
      and (p.id is null or (p.state in (${TERMINAL_SQL}) and p.orphan_policy <> 'keep'))`,
  "a job's versions have no gap and no double": (s) => `
    select * from (select job_id, id, version, lag(version) over (partition by job_id order by id) as previous
      from ${s}.job_event) e
    where version <> coalesce(previous, 0) + 1`,
  "a job's version is its last event's": (s) => `
    select j.id, j.version, e.version as logged from ${s}.job j
    join lateral (select max(version) as version from ${s}.job_event where job_id = j.id) e on true
    where j.version is distinct from e.version`,
  'every event begins where the one before ended': (s) => `
    select * from (select job_id, id, kind, "from", lag("to") over (partition by job_id order by id) as previous
      from ${s}.job_event where kind in ('created', 'moved')) e
    where kind = 'moved' and "from" is distinct from previous`,
  "a job's state is where its last move went": (s) => `
    select j.id, j.state, e."to" from ${s}.job j
    join lateral (select "to" from ${s}.job_event where job_id = j.id and kind in ('created', 'moved')
      order by version desc limit 1) e on true
    where j.state <> e."to"`,
  'only legal moves': (s) => `
    select job_id, "from", "to", reason from ${s}.job_event
    where kind = 'moved' and actor <> 'sql' and ("from", "to") not in (${LEGAL})`,
  'as many wakes in the log as waves': (s) => `
    select p.id, p.wave, count(e.id)::int as wakes from ${s}.job p
    left join ${s}.job_event e on e.job_id = p.id and e.kind = 'moved' and e.detail ? 'operationId'
    group by p.id having p.wave <> count(e.id)`,
  'a receipt for every woken parent, of its last wave': (s) => `
    select p.id, p.wave, r.wave as receipt from ${s}.job p
    left join ${s}.wake_receipt r on r.parent_id = p.id
    where p.wave is distinct from coalesce(r.wave, 0)`,
  'no wake is given twice for one wait': (s) => `
    select * from (
      select job_id, id, "from", "to", detail ? 'operationId' as wake,
        lag("from" || '>' || "to") over (partition by job_id order by id) as previous
      from ${s}.job_event where kind = 'moved') e
    where wake and "from" <> 'waiting'`,
  'no early wake: every child had settled when its parent was woken': (s) => `
    select w.job_id as parent, w.id as wake, c.job_id as child, last."to" from ${s}.job_event w
    join ${s}.job_event c on c.parent_id = w.job_id and c.kind = 'created' and c.id < w.id
    join lateral (
      select e."to", e.kind from ${s}.job_event e where e.job_id = c.job_id and e.id < w.id order by e.id desc limit 1) last on true
    where w.detail ? 'operationId'
      and not ((w.detail ->> 'forced')::boolean and w.detail ->> 'source' in ('timeout', 'manual'))
      and last.kind <> 'deleted' and last."to" in (${ACTIVE_SQL})
      and not exists (select from ${s}.job_event a
        where a.job_id = c.job_id and a.kind = 'archived' and a.id < w.id)`,
}

/** What also holds once nothing is left to do. */
const AT_REST: Record<string, (schema: string) => string> = {
  'every job is terminal': (s) => `
    select id, type, state, phase, wave, open_children, parent_id from ${s}.job
    where state in (${ACTIVE_SQL}) and archived_at is null`,
}

/** Looks for broken invariants in the rows and in the event log; empty when all hold. */
export async function findViolations(
  pool: pg.Pool,
  { schema = 'coppice', atRest = false }: { schema?: string; atRest?: boolean } = {},
): Promise<Violation[]> {
  // Without statistics of what was just written the joins below take minutes instead of seconds.
  for (const table of ['job', 'job_event', 'wake_receipt']) await pool.query(`analyze ${schema}.${table}`)
  const violations: Violation[] = []
  for (const [invariant, text] of Object.entries({ ...ALWAYS, ...(atRest ? AT_REST : {}) })) {
    const { rows } = await pool.query(`select * from (${text(schema)}) violation limit 5`)
    if (rows.length > 0) violations.push({ invariant, rows })
  }
  return violations
}
