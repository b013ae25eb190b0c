import { type RawBuilder, sql } from 'kysely'
import { validate } from 'uuid'
import type { Database } from '../../db/database.ts'
import type { JobTable } from '../../db/tables.ts'
import { type Job, jobFromRow } from '../job.ts'
import { type Heavy, jobColumns } from './columns.ts'
import { decodeCursor, encodeCursor, INSTANT_FORMAT, isInstant } from './cursor.ts'
import { groupBy } from './group-by.ts'
import { type JobFilter, jobConditions } from './job-filter.ts'
import { type Page, type PageRequest, pageOf } from './page.ts'

/** Which instant a list of jobs is ordered by, ties by id. */
export interface JobOrder {
  field: 'created_at' | 'updated_at'
  direction: 'asc' | 'desc'
}

/** One page of a list of jobs. */
export interface JobListRequest {
  filter: JobFilter
  order: JobOrder
  page: PageRequest
  heavy: Heavy
}

/** A row with its place in the order, in microseconds. */
type Row = JobTable & { place: string }

/** One page of the jobs that match. */
export async function jobPage(db: Database, request: JobListRequest): Promise<Page<Job>> {
  const { rows } = await sql<Row>`
    /* coppice:reads.job-page */ select page.*, ${placeText(request)} as place
    from (${pageText(db, request, [])}) page
    order by ${orderText('page', request)}
  `.execute(db.kysely)
  return toPage(rows, request)
}

/** One page of the children of each of several parents, in one statement: by parent, absent where there are none. */
export async function childPages(
  db: Database,
  parentIds: readonly string[],
  request: JobListRequest,
): Promise<Map<string, Page<Job>>> {
  const { rows } = await sql<Row>`
    /* coppice:reads.child-pages */ select page.*, ${placeText(request)} as place
    from unnest(${parentIds}::uuid[]) with ordinality parent(id, number)
    cross join lateral (${pageText(db, request, [sql`j.parent_id = parent.id`])}) page
    order by parent.number, ${orderText('page', request)}
  `.execute(db.kysely)
  const byParent = groupBy(rows, (row) => row.parent_id!)
  return new Map([...byParent].map(([id, children]) => [id, toPage(children, request)]))
}

function toPage(rows: readonly Row[], request: JobListRequest): Page<Job> {
  return pageOf(rows, request.page, (row) => ({
    cursor: encodeCursor(cursorKind(request.order), [row.place, row.id]),
    node: jobFromRow(row),
  }))
}

function cursorKind(order: JobOrder): string {
  return `job.${order.field}`
}

// Keyset pages: one row more than asked for, from the page's near end.
function pageText(db: Database, request: JobListRequest, more: readonly RawBuilder<unknown>[]) {
  const { filter, heavy, page } = request
  const conditions = [...more, ...jobConditions(filter), ...placeConditions(request)]
  const where = conditions.length > 0 ? sql`where ${sql.join(conditions, sql` and `)}` : sql``
  return sql`
    select ${sql.raw(jobColumns('j', heavy))} from ${sql.raw(db.tables.job)} j ${where}
    order by ${orderText('j', request)} limit ${page.size + 1}`
}

// Written out for the rows of the page only, not for all that were sorted.
function placeText({ order }: JobListRequest) {
  return sql.raw(`to_char(page.${order.field} at time zone 'UTC', ${INSTANT_FORMAT})`)
}

function orderText(alias: string, { order, page }: JobListRequest) {
  const direction = (order.direction === 'asc') !== page.backwards ? 'asc' : 'desc'
  return sql.raw(`${alias}.${order.field} ${direction}, ${alias}.id ${direction}`)
}

function placeConditions({ order, page }: JobListRequest): RawBuilder<unknown>[] {
  const behind = order.direction === 'asc' ? '>' : '<'
  const ahead = order.direction === 'asc' ? '<' : '>'
  const bound = (cursor: string | null, side: '<' | '>') => {
    if (cursor === null) return []
    const [instant, id] = decodeCursor(cursorKind(order), cursor, [isInstant, (value) => validate(value)])
    const place = sql.raw(`(j.${order.field}, j.id) ${side}`)
    return [sql`${place} (${instant}::timestamptz, ${id}::uuid)`]
  }
  return [...bound(page.after, behind), ...bound(page.before, ahead)]
}
