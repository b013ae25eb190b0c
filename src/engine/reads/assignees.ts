import type { Queryable } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import type { AssigneeTable } from '../../db/tables.ts'
import { ASSIGNEE_STATUSES, type Assignee, type AssigneeStatus } from '../assignee.ts'
import { decodeCursor, encodeCursor } from './cursor.ts'
import { groupBy } from './group-by.ts'
import { ASSIGNED } from './list-indexes.ts'
import { type Page, type PageRequest, pageOf } from './page.ts'
import { type StateCounts, stateCounts } from './state-counts.ts'

/** The assignees that have these ids; absent where there are none. */
export async function assigneesById(q: Queryable, ids: readonly string[]): Promise<Assignee[]> {
  return (await q.query(findAssignees, [ids])).map(assigneeFromRow)
}

/**
 * A page of the assignees by id, only those with these statuses if any are given.
 *
 * @throws {InvalidCursorError}
 */
export async function assigneePage(
  q: Queryable,
  page: PageRequest,
  statuses: readonly AssigneeStatus[] | null,
): Promise<Page<Assignee>> {
  const find = page.backwards ? findLast : findFirst
  const parameters = [statuses ?? ASSIGNEE_STATUSES, placeOf(page.after), placeOf(page.before), page.size + 1]
  return pageOf(await q.query(find, parameters), page, (row) => ({
    cursor: encodeCursor(CURSOR, [row.id]),
    node: assigneeFromRow(row),
  }))
}

/** How many jobs each of these assignees has in each state, archived ones left out. */
export async function assignedCounts(q: Queryable, ids: readonly string[]): Promise<Map<string, StateCounts>> {
  const byAssignee = groupBy(await q.query(countAssigned, [ids]), (row) => row.assignee_id)
  return new Map(ids.map((id) => [id, stateCounts(byAssignee.get(id) ?? [])]))
}

function assigneeFromRow(row: AssigneeTable): Assignee {
  return { id: row.id, status: row.status as AssigneeStatus, updatedAt: row.updated_at }
}

const CURSOR = 'assignee'

function placeOf(cursor: string | null): string | null {
  if (cursor === null) return null
  return decodeCursor(CURSOR, cursor, [(value) => typeof value === 'string' && !value.includes('\0')])[0] as string
}

const findAssignees = statement<AssigneeTable>(
  'reads.assignees',
  (t) => `select * from ${t.assignee} where id = any($1::text[])`,
)

// By status, then id: one probe for each status.
const pageStatement = (direction: 'asc' | 'desc') =>
  statement<AssigneeTable>(
    'reads.assignee-page',
    (t) => `
    select found.* from unnest($1::text[]) wanted(status) cross join lateral (
      select * from ${t.assignee} a where a.status = wanted.status
        and ($2::text is null or a.id > $2) and ($3::text is null or a.id < $3)
      order by a.id ${direction} limit $4) found
    order by found.id ${direction} limit $4`,
  )
const findFirst = pageStatement('asc')
const findLast = pageStatement('desc')

const countAssigned = statement<{ assignee_id: string; state: string; count: number }>(
  'reads.assigned-counts',
  (t) => `
  select j.assignee_id, j.state, count(*)::int as count from ${t.job} j
  where j.assignee_id = any($1::text[]) and ${ASSIGNED}
  group by j.assignee_id, j.state`,
)
