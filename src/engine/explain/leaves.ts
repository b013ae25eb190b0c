import { statement } from '../../db/statement.ts'
import type { Tx } from '../../db/transaction.ts'
import { groupBy } from '../reads/group-by.ts'
import { isOpenChildOf } from '../reconcile/waiting-page.ts'

/** How deep the open descendants of a parent are followed, how many of each level, and out of how many of each parent. */
export const MAX_LEVELS = 64
const BEAM = 10
const SAMPLE = 100
/** Leaves of one parent that are looked at. */
const MAX_LEAVES = 20

/** An open descendant that waits for no other one. */
export interface Leaf {
  id: string
  /** Levels below the job that it holds up. */
  levels: number
}

/**
 * What holds up each of these jobs: the leaves of their open descendants, as many as a bounded walk comes to, those
 * first that will not move by themselves. Absent: it has none, or the walk did not come to their end.
 */
export async function findLeaves(tx: Tx, ids: readonly string[]): Promise<Map<string, Leaf[]>> {
  if (ids.length === 0) return new Map()
  return groupBy(await tx.query(leaves, [ids]), (row) => row.subject)
}

// Level by level, and of each level so many that the cost has a bound, whatever the tree: of every parent of a level the
// walk takes the first child before it takes a second one of any.
const leaves = statement<Leaf & { subject: string }>(
  'explain.leaves',
  (t) => `
  with recursive level(subject, levels, ids) as (
    select s.id, 0, array[s.id] from unnest($1::uuid[]) s(id)
    union all
    select l.subject, l.levels + 1, array(
      select o.id
      from unnest(l.ids) parent(id)
      cross join lateral (
        select p.id from ${t.job} p
        where p.id = parent.id and (p.state = 'waiting' or (l.levels = 0 and p.paused_from = 'waiting')) limit 1) p
      cross join lateral (
        select c.id, row_number() over (order by (c.state in ('paused', 'waiting')) desc, c.id) as place
        from (select c.id, c.state from ${t.job} c where ${isOpenChildOf('p.id')} limit ${SAMPLE}) c
        order by 2 limit ${BEAM}) o
      order by o.place, o.id limit ${BEAM})
    from level l where l.levels < ${MAX_LEVELS} and cardinality(l.ids) > 0
  )
  select subject, levels, id from (
    select l.subject, l.levels, leaf.id,
      row_number() over (
        partition by l.subject
        order by array_position(array['paused', 'waiting', 'running', 'queued'], leaf.state), l.levels, leaf.id) as place
    from level l
    cross join lateral unnest(l.ids) member(id)
    cross join lateral (
      select j.id, j.state from ${t.job} j
      where j.id = member.id and (j.state <> 'waiting'
        or not exists (select from ${t.job} c where ${isOpenChildOf('j.id')}))
      limit 1) leaf
    where l.levels > 0) found
  where place <= ${MAX_LEAVES}
  order by subject, place`,
)
