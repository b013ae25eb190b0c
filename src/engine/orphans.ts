import { validate } from 'uuid'
import type { Database } from '../db/database.ts'
import { statement, type TableNames } from '../db/statement.ts'
import { decodeCursor, encodeCursor } from './reads/cursor.ts'
import { type Page, type PageRequest, pageOf } from './reads/page.ts'
import { ACTIVE_SQL, TERMINAL_SQL, type TerminalState } from './states.ts'

/** An active job whose parent has ended without keeping it, or is gone. */
export interface Orphan {
  id: string
  treeId: string
  parentId: string
  /** What became of its parent. */
  parentBecame: TerminalState | 'deleted'
}

/** A place in the order of orphans: by parent, then id. */
export interface OrphanPlace {
  parentId: string
  id: string
}

/** Which part of the parents with active children to look through. */
export interface OrphanRange {
  /** Behind this place, in the direction of the search; null: from its beginning. */
  from: OrphanPlace | null
  /** Up to this place, which is left out; null: to its end. */
  to: OrphanPlace | null
  backwards: boolean
  /** Most orphans to return. */
  size: number
  /** Most parents to look at. */
  parents: number
}

/** What a look has found, and where to go on; `next` is null at the end. */
export interface OrphanSlice {
  orphans: Orphan[]
  next: OrphanPlace | null
}

/** Parents that one statement of a search without an end looks at, some milliseconds' worth. */
const PARENTS_A_STATEMENT = 1000

const LEAST = '00000000-0000-0000-0000-000000000000'
const GREATEST = 'ffffffff-ffff-ffff-ffff-ffffffffffff'
const CURSOR = 'orphan'

/**
 * A page of the orphans that there are now, by parent and id. It looks at every parent that has active children until the
 * page is full: a few microseconds each.
 *
 * @throws {InvalidCursorError}
 */
export async function findOrphans(db: Database, page: PageRequest): Promise<Page<Orphan>> {
  const [after, before] = [placeOf(page.after), placeOf(page.before)]
  const [start, to] = page.backwards ? [before, after] : [after, before]
  const { backwards } = page
  const found: Orphan[] = []
  let from = start
  do {
    const size = page.size + 1 - found.length
    const slice = await lookForOrphans(db, { from, to, backwards, size, parents: PARENTS_A_STATEMENT })
    found.push(...slice.orphans)
    from = slice.next
  } while (from !== null && found.length <= page.size)
  return pageOf(found, page, (orphan) => ({
    cursor: encodeCursor(CURSOR, [orphan.parentId, orphan.id]),
    node: orphan,
  }))
}

/** Looks through a bounded number of parents, in one statement. */
export async function lookForOrphans(db: Database, range: OrphanRange): Promise<OrphanSlice> {
  const { backwards, size, parents } = range
  const [first, last] = backwards ? [GREATEST, LEAST] : [LEAST, GREATEST]
  const from = range.from ?? { parentId: first, id: first }
  const to = range.to ?? { parentId: last, id: last }
  const parameters = [from.parentId, from.id, to.parentId, to.id, parents, size]
  const rows = await db.query(backwards ? lookBackwards : lookForwards, parameters)
  const orphans = rows.flatMap(({ id, tree_id, parent_id, became }) =>
    id === null ? [] : [{ id, treeId: tree_id!, parentId: parent_id!, parentBecame: became! }],
  )
  const end = rows[0]
  const cut = orphans.at(size - 1)
  if (cut) return { orphans, next: { parentId: cut.parentId, id: cut.id } }
  return { orphans, next: end && end.looked === parents ? { parentId: end.last_parent, id: last } : null }
}

function placeOf(cursor: string | null): OrphanPlace | null {
  if (cursor === null) return null
  const [parentId, id] = decodeCursor(CURSOR, cursor, [validate, validate]) as string[]
  return { parentId: parentId!, id: id! }
}

interface Row {
  last_parent: string
  looked: number
  id: string | null
  tree_id: string | null
  parent_id: string | null
  became: TerminalState | 'deleted' | null
}

/** An open member, by the partial index job_open_children. */
export const OPEN_CHILD = `parent_id is not null and archived_at is null and state in (${ACTIVE_SQL})`

/**
 * Skips from parent to parent through the index of open members, one probe each, however many children each has; looks
 * each parent up by its primary key; and reads the children of those only that have ended. $1 and $2 the place to begin
 * behind, $3 and $4 the place to end before, $5 most parents, $6 most orphans. "offset 0": the few open members of an
 * ended parent are sorted, rather than all its children gone through in their order. A parent that the last look has begun
 * is not counted again, or a slice of one would never get on.
 */
function lookSql(t: TableNames, beyond: '>' | '<'): string {
  const order = beyond === '>' ? 'asc' : 'desc'
  const within = beyond === '>' ? '<' : '>'
  return `
  with recursive parent(id, n) as (
    (select parent_id, (parent_id <> $1)::int from ${t.job} where ${OPEN_CHILD} and parent_id ${beyond}= $1
        and parent_id ${within}= $3 order by parent_id ${order} limit 1)
    union all
    select next.parent_id, parent.n + 1 from parent cross join lateral (
      select parent_id from ${t.job} where ${OPEN_CHILD} and parent_id ${beyond} parent.id and parent_id ${within}= $3
      order by parent_id ${order} limit 1) next
    where parent.n < $5
  ),
  ended as (
    select parent.id, coalesce(p.state, 'deleted') as became from parent
    left join lateral (select state, orphan_policy from ${t.job} where id = parent.id limit 1) p on true
    where p.state is null or (p.state in (${TERMINAL_SQL}) and p.orphan_policy <> 'keep')
  ),
  orphan as (
    select child.*, ended.became from ended cross join lateral (
      select * from (
        select id, tree_id, parent_id from ${t.job} where parent_id = ended.id and ${OPEN_CHILD} offset 0) open
      where (parent_id, id) ${beyond} ($1::uuid, $2::uuid) and (parent_id, id) ${within} ($3::uuid, $4::uuid)
      order by id ${order} limit $6) child
    order by child.parent_id ${order}, child.id ${order} limit $6
  ),
  last as (select id as last_parent, n as looked from parent order by n desc limit 1)
  select last.*, orphan.* from last left join orphan on true
  order by orphan.parent_id ${order}, orphan.id ${order}`
}

const lookForwards = statement<Row>('orphans.look', (t) => lookSql(t, '>'))
const lookBackwards = statement<Row>('orphans.look-backwards', (t) => lookSql(t, '<'))
