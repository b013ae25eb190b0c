import type { Queryable } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import type { AssigneeTable } from '../../db/tables.ts'
import type { Assignee, AssigneeStatus } from '../assignee.ts'

/** The assignees that have these ids; absent where there are none. */
export async function assigneesById(q: Queryable, ids: readonly string[]): Promise<Assignee[]> {
  const rows = await q.query(findAssignees, [ids])
  return rows.map((row) => ({ id: row.id, status: row.status as AssigneeStatus, updatedAt: row.updated_at }))
}

const findAssignees = statement<AssigneeTable>(
  'reads.assignees',
  (t) => `select * from ${t.assignee} where id = any($1::text[])`,
)
