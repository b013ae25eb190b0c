import { type RawBuilder, sql } from 'kysely'
import { validate } from 'uuid'
import type { Database } from '../../db/database.ts'
import type { JobTable } from '../../db/tables.ts'
import { type Job, jobFromRow } from '../job.ts'
import { type Heavy, jobColumns } from './columns.ts'
import { decodeCursor, encodeCursor, isInstant, placeSql } from './cursor.ts'
import { groupBy } from './group-by.ts'
import type { JobFilter } from './job-filter.ts'
import { childPath, type JobOrderField, type JobPath, jobPath, type PlaceColumn } from './job-paths.ts'
import { type Page, type PageRequest, pageOf } from './page.ts'

/**
 * Which instant a list of jobs is ordered by, ties by id. Lists that go by `created_at` go by the id alone, which carries
 * the instant at which it was made, if the filter names a tree, a parent, ids, a key, assignees, workers, errors,
 * metadata or a text: so they can be read in order.
 */
export interface JobOrder {
  field: JobOrderField
  direction: 'asc' | 'desc'
}

/** One page of a list of jobs. */
export interface JobListRequest {
  filter: JobFilter
  order: JobOrder
  page: PageRequest
  heavy: Heavy
}

/** A row with its place in the order, in microseconds; null where the id is the place. */
type Row = JobTable & { place: string | null }

/** One page of the jobs that match. */
export async function jobPage(db: Database, request: JobListRequest): Promise<Page<Job>> {
  const path = jobPath(db.tables.job, request.filter, request.order.field)
  const { rows } = await sql<Row>`
    /* coppice:reads.job-page */ ${pageText(db, path, request)}
    order by ${orderText('page', path, request)}
  `.execute(db.kysely)
  return toPage(rows, path, request)
}

/** One page of the children of each of several parents, in one statement: by parent, absent where there are none. */
export async function childPages(
  db: Database,
  parentIds: readonly string[],
  request: JobListRequest,
): Promise<Map<string, Page<Job>>> {
  const path = childPath(sql.raw(db.tables.job), sql`parent.id`, request.filter, request.order.field)
  const { rows } = await sql<Row>`
    /* coppice:reads.child-pages */ select page.*
    from unnest(${parentIds}::uuid[]) with ordinality parent(id, number)
    cross join lateral (${pageText(db, path, request)} order by ${orderText('page', path, request)}) page
    order by parent.number, ${orderText('page', path, request)}
  `.execute(db.kysely)
  const byParent = groupBy(rows, (row) => row.parent_id!)
  return new Map([...byParent].map(([id, rows]) => [id, toPage(rows, path, request)]))
}

function toPage(rows: readonly Row[], { place }: JobPath, request: JobListRequest): Page<Job> {
  return pageOf(rows, request.page, (row) => ({
    cursor: encodeCursor(cursorKind(place), place === 'id' ? [row.id] : [row.place!, row.id]),
    node: jobFromRow(row),
  }))
}

function cursorKind(place: PlaceColumn): string {
  return `job.${place}`
}

// Keyset pages: one row more than asked for, from the page's near end. The rows themselves are read for the page only.
function pageText(db: Database, path: JobPath, request: JobListRequest) {
  const { heavy, page } = request
  const limit = page.size + 1
  const first = path.first({
    conditions: placeConditions(path, request),
    cut: { order: orderText('j', path, request), limit },
  })
  return sql`
    select page.*, ${placeText(path)} as place from (
      select found.id from ${first} found order by ${orderText('found', path, request)} limit ${limit}) place
    cross join lateral (
      select ${sql.raw(jobColumns('j', heavy))} from ${sql.raw(db.tables.job)} j where j.id = place.id limit 1) page`
}

function placeText({ place }: JobPath) {
  return place === 'id' ? sql`null::text` : sql.raw(placeSql(`page.${place}`))
}

function orderText(alias: string, { place }: JobPath, { order, page }: JobListRequest) {
  const direction = (order.direction === 'asc') !== page.backwards ? 'asc' : 'desc'
  const columns = place === 'id' ? ['id'] : [place, 'id']
  return sql.raw(columns.map((column) => `${alias}.${column} ${direction}`).join(', '))
}

function placeConditions({ place }: JobPath, { order, page }: JobListRequest): RawBuilder<unknown>[] {
  const behind = order.direction === 'asc' ? '>' : '<'
  const ahead = order.direction === 'asc' ? '<' : '>'
  const isId = (value: unknown) => validate(value)
  const bound = (cursor: string | null, side: '<' | '>') => {
    if (cursor === null) return []
    if (place === 'id') {
      const [id] = decodeCursor(cursorKind(place), cursor, [isId])
      return [sql`j.id ${sql.raw(side)} ${id}::uuid`]
    }
    const [instant, id] = decodeCursor(cursorKind(place), cursor, [isInstant, isId])
    return [sql`${sql.raw(`(j.${place}, j.id) ${side}`)} (${instant}::timestamptz, ${id}::uuid)`]
  }
  return [...bound(page.after, behind), ...bound(page.before, ahead)]
}
