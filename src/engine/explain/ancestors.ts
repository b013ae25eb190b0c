import { statement } from '../../db/statement.ts'
import type { Tx } from '../../db/transaction.ts'
import { groupBy } from '../reads/group-by.ts'
import { MAX_LEVELS } from './leaves.ts'

/** An ancestor that is paused. */
export interface PausedAncestor {
  id: string
  type: string
  key: string | null
}

/** The paused ones among the ancestors of each of these jobs, nearest first; absent where there are none. */
export async function findPausedAncestors(tx: Tx, ids: readonly string[]): Promise<Map<string, PausedAncestor[]>> {
  if (ids.length === 0) return new Map()
  return groupBy(await tx.query(pausedAncestors, [ids]), (row) => row.subject)
}

const pausedAncestors = statement<PausedAncestor & { subject: string }>(
  'explain.paused-ancestors',
  (t) => `
  with recursive way(subject, levels, id, type, key, state, parent_id) as (
    select s.id, 0, j.id, j.type, j.key, j.state, j.parent_id
    from unnest($1::uuid[]) s(id)
    cross join lateral (select * from ${t.job} j where j.id = s.id limit 1) j
    union all
    select w.subject, w.levels + 1, p.id, p.type, p.key, p.state, p.parent_id
    from way w
    cross join lateral (select * from ${t.job} p where p.id = w.parent_id limit 1) p
    where w.levels < ${MAX_LEVELS}
  )
  select subject, id, type, key from way where levels > 0 and state = 'paused' order by subject, levels`,
)
