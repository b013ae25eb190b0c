import type { Queryable } from '../../db/database.ts'
import { type Statement, statement } from '../../db/statement.ts'
import { TERMINAL_STATES, type TerminalState } from '../states.ts'

/** A root that ended long enough ago; whether its tree did as well is for the deletion to say. */
export interface DueRoot {
  id: string
  hasDescendants: boolean
  /** When it ended, with microseconds: its place in the order, with its id. */
  place: string
}

/** A page of the roots that ended so longer than `age` ms ago, oldest first, behind a place. */
export async function dueRoots(
  q: Queryable,
  state: TerminalState,
  { age, after, limit }: { age: number; after: { place: string; id: string } | null; limit: number },
): Promise<DueRoot[]> {
  const rows = await q.query(findDueRoots[state], [age, after?.place ?? '-infinity', after?.id ?? LEAST, limit])
  return rows.map(({ id, place, has_descendants }) => ({ id, place, hasDescendants: has_descendants }))
}

/** Trees whose root is gone, of a slice of all trees that have descendants; `next` is where to go on, null at the end. */
export async function rootlessTrees(
  q: Queryable,
  { after, trees }: { after: string | null; trees: number },
): Promise<{ ids: string[]; next: string | null }> {
  const rows = await q.query(findRootless, [after ?? LEAST, trees])
  const ids = rows.filter((row) => row.rootless).map((row) => row.id)
  return { ids, next: rows.length < trees ? null : rows.at(-1)!.id }
}

const LEAST = '00000000-0000-0000-0000-000000000000'

type DueRow = { id: string; place: string; has_descendants: boolean }

// By the partial index job_retention. The state is a literal: so the planner knows that the index has all of them.
// "limit 1": an exists may become a hash join with all descendants that there are.
const findDueRoots = Object.fromEntries(
  TERMINAL_STATES.map((state) => [
    state,
    statement<DueRow>(
      `retention.due-${state}`,
      (t) => `
      select due.id, due.finished_at::text as place,
        (select d.id from ${t.job} d where d.tree_id = due.id and d.parent_id is not null limit 1) is not null
          as has_descendants
      from (
        select id, finished_at from ${t.job}
        where parent_id is null and state = '${state}' and finished_at < now() - $1 * interval '1 millisecond'
          and (finished_at, id) > ($2::timestamptz, $3::uuid)
        order by finished_at, id limit $4) due
      order by due.finished_at, due.id`,
    ),
  ]),
) as Record<TerminalState, Statement<DueRow>>

/** Roots that ended, by plain SQL, without saying when. */
export async function undatedRoots(q: Queryable, limit: number): Promise<string[]> {
  return (await q.query(findUndated, [limit])).map((row) => row.id)
}

const findUndated = statement<{ id: string }>('retention.undated', (t) =>
  TERMINAL_STATES.map((state) => undatedSql(t.job, state)).join(' union all '),
)

function undatedSql(job: string, state: TerminalState): string {
  return `(select id from ${job} where parent_id is null and state = '${state}' and finished_at is null limit $1)`
}

// Skips from tree to tree through the index job_tree: one probe there and one by the primary key for each.
const findRootless = statement<{ id: string; rootless: boolean }>(
  'retention.rootless',
  (t) => `
  with recursive tree(id, n) as (
    (select tree_id, 1 from ${t.job} where parent_id is not null and tree_id > $1 order by tree_id limit 1)
    union all
    select next.tree_id, tree.n + 1 from tree cross join lateral (
      select tree_id from ${t.job} where parent_id is not null and tree_id > tree.id order by tree_id limit 1) next
    where tree.n < $2
  )
  select tree.id, root.id is null as rootless from tree
  left join lateral (select id from ${t.job} where id = tree.id limit 1) root on true
  order by tree.id`,
)
