import { type RawBuilder, sql } from 'kysely'
import { FAILURE_CODES } from '../job.ts'
import { isTerminal, JOB_STATES, type JobState } from '../states.ts'
import { type Condition, isGiven, isIdSearch, type JobFilter, jobConditions } from './job-filter.ts'
import {
  ASSIGNED,
  ENDED_BADLY,
  LISTED,
  LISTED_ACTIVE,
  LISTED_ARCHIVED,
  LISTED_ENDED,
  WITH_ERROR,
} from './list-indexes.ts'

/*
 * How a list finds its jobs without reading the rest. Most filters are a few values of one index: one probe for each
 * value gives its first jobs in the list's own order, and the first of those are the page. Rows are read only for what
 * the probes have found.
 */

/** Most jobs that a text is looked for in, where nothing else narrows the list: the newest ones, by id. */
export const SEARCHED_JOBS = 100_000

/** Which instant a list is ordered by. */
export type JobOrderField = 'created_at' | 'updated_at'

/** What does it: the instant and then the id, or the id alone. */
export type PlaceColumn = JobOrderField | 'id'

/** A way to the first jobs of a list. */
export interface JobPath {
  place: PlaceColumn
  /** A table expression in parentheses with the columns `id`, `created_at`, `updated_at` of the first jobs, unsorted. */
  first(limits: Limits): RawBuilder<unknown>
}

/** What cuts the list to a page. */
export interface Limits {
  /** Beyond the filter: where the page begins and ends. */
  conditions: readonly Condition[]
  /** Names the columns of `j` to sort by, in the direction that the page is read in; null: all jobs, in no order. */
  cut: { order: RawBuilder<unknown>; limit: number } | null
}

/** The way to the jobs that match, in the order of `field`; `job` is the table. */
export function jobPath(job: string, filter: JobFilter, field: JobOrderField): JobPath {
  const table = sql.raw(job)
  const place = placeOf(field)
  const { parentId, assigneeIds, archived, errorCodes, error, search, metadata } = filter
  if (isExact(filter)) return plain(place, table, filter)
  if (isGiven(parentId)) return childPath(table, sql`${parentId}::uuid`, { ...filter, parentId: null }, field)
  if (isGiven(filter.treeId)) return treePath(place, table, filter)
  if (isGiven(assigneeIds) && archived !== true && archived !== null) return assignedPath(place, table, filter)
  if (isGiven(errorCodes) || isGiven(error)) return errorPath(place, table, filter)
  if ([assigneeIds, search, metadata].some(isGiven)) return plain(place, windowed(table, filter), filter)
  return groupPath(field, table, filter)
}

/** The way to the children of the parent that an expression names. */
export function childPath(
  table: RawBuilder<unknown>,
  parentId: RawBuilder<unknown>,
  filter: JobFilter,
  field: JobOrderField,
): JobPath {
  const place = placeOf(field)
  const { states, archived } = filter
  const bad = (state: JobState) => state === 'failed' || state === 'cancelled'
  if (!isGiven(states) || !states.every(bad) || archived === true || archived === null) {
    return plain(place, table, filter, [only('parent_id', parentId)])
  }
  return probes(place, sql`unnest(${states}::text[]) probe(state)`, table, filter, [
    sql`${only('parent_id', parentId)} and j.state = probe.state and ${sql.raw(ENDED_BADLY)}`,
  ])
}

/** Where the jobs are found by other columns than instants, the id stands for the instant of the enqueueing. */
function placeOf(field: JobOrderField): PlaceColumn {
  return field === 'created_at' ? 'id' : field
}

/** Whether a filter names its jobs, or so few that looking at all of them is the way. */
function isExact({ ids, key, workerIds, search }: JobFilter): boolean {
  return [ids, key, workerIds].some(isGiven) || isIdSearch(search ?? '')
}

/** Whether it leaves few jobs to look for a text in. */
function isNarrow(filter: JobFilter): boolean {
  return isExact(filter) || [filter.parentId, filter.treeId, filter.assigneeIds, filter.errorCodes].some(isGiven)
}

/** The jobs to look for a text in. */
function windowed(table: RawBuilder<unknown>, filter: JobFilter): RawBuilder<unknown> {
  if (!(isGiven(filter.search) || isGiven(filter.error)) || isNarrow(filter)) return table
  return sql`(select * from ${table} order by id desc limit ${SEARCHED_JOBS})`
}

/** One question, for the planner to answer. */
function plain(
  place: PlaceColumn,
  from: RawBuilder<unknown>,
  filter: JobFilter,
  more: readonly Condition[] = [],
): JobPath {
  return {
    place,
    first: (limits) => sql`(${firstOf(from, [...more, ...jobConditions(filter), ...limits.conditions], limits)})`,
  }
}

/** One probe for each row of `each`. */
function probes(
  place: PlaceColumn,
  each: RawBuilder<unknown>,
  from: RawBuilder<unknown>,
  filter: JobFilter,
  by: readonly Condition[],
): JobPath {
  return {
    place,
    first: (limits) => sql`(
      select found.* from ${each}
      cross join lateral (${firstOf(from, [...by, ...jobConditions(filter), ...limits.conditions], limits)}) found)`,
  }
}

/**
 * A column of `j` has this value. Said three times, so that few seem to have it: else the planner, which knows only how
 * many have a value on the average, goes through the primary key in the order of the list, and if there are none after all
 * through the whole of it.
 */
function only(column: string, value: RawBuilder<unknown>): Condition {
  const name = sql.raw(`j.${column}`)
  return sql`${name} = ${value} and ${name} >= ${value} and ${name} <= ${value}`
}

function firstOf(from: RawBuilder<unknown>, conditions: readonly Condition[], { cut }: Limits) {
  return sql`
      select j.id, j.created_at, j.updated_at from ${from} j where ${sql.join([sql`true`, ...conditions], sql` and `)}
      ${cut ? sql`order by ${cut.order} limit ${cut.limit}` : sql``}`
}

/** Several ways at once, to different jobs. */
function together(place: PlaceColumn, paths: readonly JobPath[]): JobPath {
  return {
    place,
    first: (limits) =>
      sql`(${sql.join(
        paths.map((path) => sql`select * from ${path.first(limits)} way`),
        sql` union all `,
      )})`,
  }
}

// The index of trees goes by depth: one probe for each depth that there is, and the primary key for the root.
function treePath(place: PlaceColumn, table: RawBuilder<unknown>, filter: JobFilter): JobPath {
  const rest = { ...filter, treeId: null }
  const id = sql`${filter.treeId}::uuid`
  const depths = sql`(
    with recursive level(depth) as (
      (select depth from ${table} where tree_id = ${id} and parent_id is not null order by depth limit 1)
      union all
      select next.depth from level cross join lateral (
        select depth from ${table} where tree_id = ${id} and parent_id is not null and depth > level.depth
        order by depth limit 1) next)
    select depth from level) probe`
  return together(place, [
    plain(place, table, rest, [sql`j.id = ${id} and j.parent_id is null`]),
    probes(place, depths, table, rest, [
      sql`${only('tree_id', id)} and j.parent_id is not null and j.depth = probe.depth`,
    ]),
  ])
}

function assignedPath(place: PlaceColumn, table: RawBuilder<unknown>, filter: JobFilter): JobPath {
  const { assigneeIds, states, ...rest } = filter
  const each = sql`unnest(${assigneeIds}::text[]) assignee(id) cross join unnest(${states ?? JOB_STATES}::text[]) probe(state)`
  return probes(place, each, table, rest, [
    sql`${only('assignee_id', sql`assignee.id`)} and j.state = probe.state and ${sql.raw(ASSIGNED)}`,
  ])
}

// A text is looked for in the first jobs of each code.
function errorPath(place: PlaceColumn, table: RawBuilder<unknown>, filter: JobFilter): JobPath {
  const { errorCodes, ...rest } = filter
  const each = sql`unnest(${errorCodes ?? FAILURE_CODES}::text[]) probe(code)`
  const by = sql`${only('error_code', sql`probe.code`)} and ${sql.raw(WITH_ERROR)}`
  if (!isGiven(filter.error) || isNarrow(rest)) return probes(place, each, table, rest, [by])
  const first = sql`(select * from ${table} j where ${by} order by j.id desc limit ${SEARCHED_JOBS})`
  return probes(place, each, first, rest, [])
}

// By (queue, type, state, whether it is a root): what the filter does not name is found by skipping through the index.
function groupPath(field: JobOrderField, table: RawBuilder<unknown>, filter: JobFilter): JobPath {
  const { archived, states } = filter
  const paths: JobPath[] = []
  if (archived !== true) {
    const groups = (states: readonly JobState[]) => groupsOf(field, table, { ...filter, states }, LISTED)
    const atRest = (states ?? JOB_STATES).filter((state) => state !== 'running')
    if (field === 'created_at') paths.push(groups(atRest))
    else {
      const [ended, active] = [atRest.filter(isTerminal), atRest.filter((state) => !isTerminal(state))]
      if (ended.length > 0) paths.push(nearOr(groups(ended), LISTED_ENDED, table, filter))
      if (active.length > 0) paths.push(nearOr(groups(active), LISTED_ACTIVE, table, filter))
    }
    if ((states ?? JOB_STATES).includes('running')) {
      paths.push(plain(field, table, { ...filter, archived: false }, [sql`j.state = 'running'`]))
    }
  }
  if (archived === true || archived === null) {
    paths.push(groupsOf(field, table, { ...filter, states: states ?? JOB_STATES }, LISTED_ARCHIVED))
  }
  return paths.length === 0 ? plain(field, table, filter) : together(field, paths)
}

/** Most jobs of those that changed last which are looked at before all that match are sorted. */
const NEAR = 2000

/** By what changed last: mostly a page is full of what is near; if not, what matches is rare, or far behind. */
function nearOr(far: JobPath, listed: string, table: RawBuilder<unknown>, filter: JobFilter): JobPath {
  return {
    place: 'updated_at',
    first(limits) {
      const { conditions, cut } = limits
      if (!cut) return far.first(limits)
      // What was enqueued since an instant has changed since.
      const since = isGiven(filter.createdAfter) ? [sql`j.updated_at >= ${filter.createdAfter}`] : []
      const front = sql`(
        select * from ${table} j where ${sql.join([sql.raw(listed), ...since, ...conditions], sql` and `)}
        order by ${cut.order} limit ${NEAR})`
      return sql`(
        with near as materialized (${firstOf(front, jobConditions(filter), { conditions: [], cut })})
        select * from near where (select count(*) from near) >= ${cut.limit}
        union all
        select * from ${far.first(limits)} far where (select count(*) from near) < ${cut.limit})`
    },
  }
}

function groupsOf(field: JobOrderField, table: RawBuilder<unknown>, filter: JobFilter, listed: string): JobPath {
  const { queues, types, states, roots, archived: _archived, ...others } = filter
  const condition = sql.raw(listed)
  const wanted = [
    ...(isGiven(queues) ? [sql`pair.queue = any(${queues}::text[])`] : []),
    ...(isGiven(types) ? [sql`pair.type = any(${types}::text[])`] : []),
    sql`true`,
  ]
  const pairs = sql`(
    with recursive pair(queue, type) as (
      (select j.queue, j.type from ${table} j where ${condition} order by j.queue, j.type limit 1)
      union all
      select next.queue, next.type from pair cross join lateral (
        select j.queue, j.type from ${table} j where ${condition} and (j.queue, j.type) > (pair.queue, pair.type)
        order by j.queue, j.type limit 1) next)
    select pair.queue, pair.type from pair where ${sql.join(wanted, sql` and `)}) pair`
  const each = sql`${pairs} cross join unnest(${states}::text[]) probe(state)
    cross join unnest(${isGiven(roots) ? [roots] : [true, false]}::boolean[]) kind(root)`
  // The index says whether a job is archived.
  const rest = { ...others, archived: null }
  const by = sql`j.queue = pair.queue and j.type = pair.type and j.state = probe.state
      and (j.parent_id is null) = kind.root and ${condition}`
  if (field === 'created_at') return probes(field, each, table, rest, [by])
  // Sorted: the fence keeps the planner from another order.
  const group = sql`(select * from ${table} j where ${sql.join([by, ...jobConditions(rest)], sql` and `)} offset 0)`
  return probes(field, each, group, { archived: null }, [])
}
