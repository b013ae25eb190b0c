import type { Queryable } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import { groupBy } from './group-by.ts'
import { type StateCounts, stateCounts } from './state-counts.ts'

/** How many children each of these parents has in each state, of all waves, archived ones left out. */
export async function childCounts(q: Queryable, parentIds: readonly string[]): Promise<Map<string, StateCounts>> {
  const rows = await q.query(countChildren, [parentIds])
  const byParent = groupBy(rows, (row) => row.parent_id)
  return new Map(parentIds.map((id) => [id, stateCounts(byParent.get(id) ?? [])]))
}

const countChildren = statement<{ parent_id: string; state: string; count: number }>(
  'reads.child-counts',
  (t) => `
  select parent_id, state, count(*)::int as count from ${t.job}
  where parent_id = any($1::uuid[]) and archived_at is null
  group by parent_id, state`,
)
