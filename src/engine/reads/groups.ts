import type { Database } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import { transaction } from '../../db/transaction.ts'
import { LISTED } from './list-indexes.ts'

/** How many jobs of a queue and type are in a state, without archived ones. */
export interface GroupCount {
  queue: string
  type: string
  state: string
  count: number
}

/**
 * All jobs by queue, type and state, without archived ones. It reads all of an index: some tenths of a second for a
 * million jobs.
 */
export async function groupCounts(db: Database): Promise<GroupCount[]> {
  return transaction(db, (tx) => tx.query(countGroups), { repeatableRead: true })
}

const countGroups = statement<GroupCount>(
  'reads.group-counts',
  (t) => `
  select j.queue, j.type, j.state, count(*)::int as count from ${t.job} j where ${LISTED}
  group by j.queue, j.type, j.state
  union all
  select j.queue, j.type, j.state, count(*)::int from ${t.job} j where j.state = 'running' and j.archived_at is null
  group by j.queue, j.type, j.state`,
)
