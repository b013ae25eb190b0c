import type { Queryable } from '../../db/database.ts'
import { statement, type TableNames } from '../../db/statement.ts'
import { placeSql } from '../reads/cursor.ts'
import { FIRST_WAITING, isOpenChildOf, type WaitingCursor, waitingPage } from './waiting-page.ts'

/** Why the reconciler leaves a parent alone although no child of it is open. */
export type Withheld =
  /** Out of every list. */
  | 'archived'
  /** A child's failure is not borne: it is failed, not woken. */
  | 'failing'
  /** Only the edge wakes it. */
  | 'ephemeral'
  /** Its assignee has no row. */
  | 'assignee_unknown'
  /** Its assignee is not ACTIVE. */
  | 'assignee_inactive'

/** A waiting parent none of whose children is open, by their rows. */
export interface DueParent {
  id: string
  treeId: string
  type: string
  /** Null: plain SQL let it wait. */
  waitingSince: Date | null
  /** The counter, which the rows contradict if it is not 0. */
  openChildren: number
  assigneeId: string | null
  /** Null: no assignee, or one without a row. */
  assigneeStatus: string | null
  /** Null: the next tick wakes it. */
  withheld: Withheld | null
  /** Where it stands in the order of the walk. */
  place: WaitingCursor
}

/** Some of the parents that are due or withheld, oldest first. */
export interface DueParents {
  parents: DueParent[]
  /** Where to go on; null: there are no more. */
  next: WaitingCursor | null
}

/** Waiting parents that one statement looks at. */
const PAGE = 5000

/**
 * What the reconciler would do, from rows alone: the waiting parents that have no open child, and which of them it would
 * leave alone, and why. Reads only. Looks at every waiting parent, so it takes about a second for 100,000 of them.
 */
export async function findDueParents(
  q: Queryable,
  { limit, after = FIRST_WAITING }: { limit: number; after?: WaitingCursor },
): Promise<DueParents> {
  const parents: DueParent[] = []
  let cursor = after
  for (;;) {
    const rows = await q.query(readDuePage, [cursor.since, cursor.id, PAGE])
    for (const { cursorSince, pageSize: _, lastSince: __, lastId: ___, ...parent } of rows) {
      if (parent.id === null) continue
      const place = { since: cursorSince!, id: parent.id }
      parents.push({ ...parent, id: parent.id, place })
      if (parents.length === limit) return { parents, next: place }
    }
    const { pageSize, lastSince, lastId } = rows[0]!
    if (pageSize < PAGE) return { parents, next: null }
    cursor = { since: lastSince!, id: lastId! }
  }
}

interface DuePageRow extends Omit<DueParent, 'id' | 'place'> {
  /** Null in the one row of a page on which nothing was found. */
  id: string | null
  cursorSince: string | null
  pageSize: number
  lastSince: string | null
  lastId: string | null
}

/** Why a parent `p` with the assignee's row `a` (or none) is left alone, as SQL: null if it is not. */
export const WITHHELD_SQL = `case
      when p.archived_at is not null then 'archived'
      when p.failing_child_id is not null then 'failing'
      when p.ephemeral then 'ephemeral'
      when p.assignee_id is not null and a.status is null then 'assignee_unknown'
      when a.status <> 'active' then 'assignee_inactive' end`

const readDuePage = statement<DuePageRow>(
  'reconcile.read-due-page',
  (t: TableNames) => `
  with ${waitingPage(t)},
  due as (
    select p.*, a.status, ${WITHHELD_SQL} as withheld
    from page p left join ${t.assignee} a on a.id = p.assignee_id
    where not exists (select from ${t.job} c where ${isOpenChildOf('p.id')})
  ),
  last as (select since, id from page order by since desc, id desc limit 1)
  select d.id, d.tree_id as "treeId", d.type, d.waiting_since as "waitingSince", d.open_children as "openChildren",
    d.assignee_id as "assigneeId", d.status as "assigneeStatus", d.withheld, ${placeSql('d.since')} as "cursorSince",
    (select count(*)::int from page) as "pageSize", ${placeSql('last.since')} as "lastSince", last.id as "lastId"
  from (select) one left join last on true left join due d on true
  order by d.since, d.id`,
)
