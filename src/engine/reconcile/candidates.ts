import type { Queryable } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import { isOpenChildOf } from './waiting-page.ts'

/** A parent whose counter says that no child of it is open, and that nothing else keeps from being woken. */
export interface Candidate {
  id: string
  /** A child's row says otherwise. */
  open: boolean
}

/** An assignee that cannot act, of whose parents at least one would be a candidate. */
export interface RestingAssignee {
  id: string
  /** Null: it has no row. */
  status: string | null
}

/** What the counters show. */
export interface Candidates {
  /** Oldest first. */
  candidates: Candidate[]
  /** There are more behind the last of them. */
  more: boolean
  /** How many there are, these included, wherever the search began; at most {@link MOST_COUNTED} are counted. */
  total: number
  resting: {
    count: number
    /** The first few. */
    some: RestingAssignee[]
  }
}

/** Candidates that are counted: some tens of milliseconds, when something has gone very wrong. */
const MOST_COUNTED = 100_000

/** Assignees that a log line names. */
const NAMED = 20

/**
 * Finds parents by their counters: at most `limit` behind `after`, oldest first. All that would reject one for good is
 * decided before the limit, so that those at rest keep nobody from a turn; they cost one probe for each assignee.
 */
export async function findCandidates(
  q: Queryable,
  { limit, after }: { limit: number; after: string | null },
): Promise<Candidates> {
  const assignees = await q.query(findAssignees)
  const able = assignees.filter((assignee) => assignee.status === 'active').map((assignee) => assignee.id)
  const some = assignees.filter((assignee) => assignee.status !== 'active')
  const rows = await q.query(findUnopposed, [able, limit, after])
  const more = rows[0]?.more ?? false
  return {
    candidates: rows.map(({ id, open }) => ({ id, open })),
    more,
    // Behind a place there may be few, and many before it.
    total: more || after !== null ? (await q.query(countUnopposed, [able]))[0]!.total : rows.length,
    resting: { count: some[0]?.alike ?? 0, some: some.map(({ id, status }) => ({ id, status })) },
  }
}

/** The first few parents that wait for each of these assignees. */
export function findWithheldParents(
  q: Queryable,
  assigneeIds: readonly string[],
): Promise<{ assigneeId: string; parentIds: string[] }[]> {
  return q.query(firstWithheld, [assigneeIds])
}

/** The condition of the index job_stuck, for a job `j`. */
export const SETTLED = `j.state = 'waiting' and j.open_children <= 0 and j.archived_at is null and j.failing_child_id is null`

/**
 * Whose parent the job `j` is, as a range: by an equation, an order by assignee and id would be one by id alone to the
 * planner, which then reads the whole table in the order of its primary key.
 */
export function assigneeIs(value: string): string {
  return `j.assignee_id >= ${value} and j.assignee_id <= ${value}`
}

// Skips through the index job_stuck from assignee to assignee. All that are active come back, of the others the first few
// and how many they are.
const findAssignees = statement<RestingAssignee & { alike: number }>(
  'reconcile.find-assignees',
  (t) => `
  with recursive met(id) as (
    (select j.assignee_id from ${t.job} j
     where ${SETTLED} and not j.ephemeral and j.assignee_id is not null order by j.assignee_id limit 1)
    union all
    select next.assignee_id from met cross join lateral (
      select j.assignee_id from ${t.job} j
      where ${SETTLED} and not j.ephemeral and j.assignee_id > met.id order by j.assignee_id limit 1) next
  ),
  known as (
    select met.id, a.status, count(*) over alike as alike,
      row_number() over (partition by coalesce(a.status = 'active', false) order by met.id) as nth
    from met left join lateral (select a.status from ${t.assignee} a where a.id = met.id) a on true
    window alike as (partition by coalesce(a.status = 'active', false))
  )
  select id, status, alike::int from known where status = 'active' or nth <= ${NAMED} order by id`,
  { prepared: true },
)

// By the index job_stuck: for each assignee that can act, and for the parents that have none, the first few.
const findUnopposed = statement<Candidate & { more: boolean }>(
  'reconcile.find-candidates',
  (t) => `
  with unopposed as (
    (select j.id from ${t.job} j
     where ${SETTLED} and not j.ephemeral and j.assignee_id is null and ($3::uuid is null or j.id > $3)
     order by j.assignee_id, j.id limit $2 + 1)
    union all
    select own.id from unnest($1::text[]) able(id) cross join lateral (
      select j.id from ${t.job} j
      where ${SETTLED} and not j.ephemeral and ${assigneeIs('able.id')} and ($3::uuid is null or j.id > $3)
      order by j.assignee_id, j.id limit $2 + 1) own
  ),
  first as (select id, count(*) over () > $2 as more from unopposed order by id limit $2)
  select id, more, exists (select from ${t.job} c where ${isOpenChildOf('first.id')}) as open from first order by id`,
  { prepared: true },
)

const countUnopposed = statement<{ total: number }>(
  'reconcile.count-candidates',
  (t) => `
  select count(*)::int as total from (
    (select from ${t.job} j where ${SETTLED} and not j.ephemeral and j.assignee_id is null limit ${MOST_COUNTED})
    union all
    select from unnest($1::text[]) able(id) cross join lateral (
      select from ${t.job} j where ${SETTLED} and not j.ephemeral and ${assigneeIs('able.id')}
      limit ${MOST_COUNTED}) own
    limit ${MOST_COUNTED}) unopposed`,
  { prepared: true },
)

const firstWithheld = statement<{ assigneeId: string; parentIds: string[] }>(
  'reconcile.first-withheld',
  (t) => `
  select able.id as "assigneeId", array(
    select j.id from ${t.job} j
    where ${SETTLED} and not j.ephemeral and ${assigneeIs('able.id')} order by j.assignee_id, j.id limit 3) as "parentIds"
  from unnest($1::text[]) able(id)`,
)
