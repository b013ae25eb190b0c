import type { Database } from '../../db/database.ts'
import { statement, type TableNames } from '../../db/statement.ts'
import { transaction } from '../../db/transaction.ts'
import { engineDeletes } from '../engine-writes.ts'
import { insertEvents } from '../event-sql.ts'
import { lockJobs, lockTreeExclusive, treeBucket, tryLockTreesShared } from '../locks.ts'
import { ACTIVE_SQL, type TerminalState } from '../states.ts'

/*
 * Trees go as a whole or not at all: a root that has ended, with everything below it, once nothing in the tree is open
 * and the last of it ended long enough ago. So no parent ever misses a child that it has yet to read, no child is left
 * behind under a root that is gone, and what a parent KEEPs keeps its parent's row.
 */

/** Who the event log names for what is deleted for its age. */
export const RETENTION_ACTOR = 'retention'

/** How long to keep a job that ended so, in ms; null: for ever. */
export type Ages = Readonly<Record<TerminalState, number | null>>

/** Writing a million DELETED events takes a while. */
const TIMEOUT_MS = 600_000

/**
 * Deletes roots without descendants, those of them that are due and that nobody holds, in one transaction; returns how
 * many. Locks: shared tree locks as far as they are to be had, then rows that are not locked.
 */
export async function pruneLeaves(db: Database, ids: readonly string[], ages: Ages): Promise<number> {
  if (ids.length === 0) return 0
  return transaction(db, async (tx) => {
    const buckets = await tryLockTreesShared(tx, ids)
    const mine = ids.filter((id) => buckets.has(treeBucket(id)))
    const locked = await tx.query(lockDueRoots, [mine, ...agesOf(ages)])
    await engineDeletes(tx)
    const rows = await tx.query(deleteLeaves, [locked.map((row) => row.id), RETENTION_ACTOR])
    return rows.length
  })
}

/**
 * Deletes a whole tree if it is due, and returns how many jobs it had; 0 if anything in it is open or too young. A root
 * decides by its state how long all of its tree is kept; where it is gone, each job decides for itself, and the tree goes
 * once all are due. Locks: the tree exclusively, then the root's row.
 */
export async function pruneTree(db: Database, treeId: string, ages: Ages): Promise<number> {
  return transaction(
    db,
    async (tx) => {
      await lockTreeExclusive(tx, treeId)
      const root = (await lockJobs(tx, [treeId])).get(treeId)
      const age = root ? (ages[root.state as TerminalState] ?? null) : null
      const own = root ? { completed: age, failed: age, cancelled: age } : ages
      const [keeps] = await tx.query(keepsTree, [treeId, ...agesOf(own)])
      if (keeps!.keeps) return 0
      await engineDeletes(tx)
      const [gone] = await tx.query(deleteWholeTree, [treeId, RETENTION_ACTOR])
      return gone!.deleted
    },
    { statementTimeoutMs: TIMEOUT_MS },
  )
}

function agesOf({ completed, failed, cancelled }: Ages): (number | null)[] {
  return [completed, failed, cancelled]
}

/** Whether a job that has ended did so long enough ago: ages are $2 to $4. One ended by plain SQL may not say when. */
const DUE = `coalesce(j.finished_at, j.updated_at) < now() - interval '1 millisecond' *
      case j.state when 'completed' then $2::float8 when 'failed' then $3::float8 when 'cancelled' then $4::float8 end`

const lockDueRoots = statement<{ id: string }>(
  'retention.lock-roots',
  (t) => `
  select j.id from ${t.job} j where j.id = any($1::uuid[]) and j.parent_id is null and ${DUE}
  order by j.id for update skip locked`,
)

// Both by the primary key and the index job_tree. What is not due is looked for: it is mostly found at once, or not there.
const keepsTree = statement<{ keeps: boolean }>(
  'retention.keeps-tree',
  (t) => `
  select exists (select from ${t.job} j where j.id = $1 and (${DUE}) is not true)
    or exists (select from ${t.job} j where j.tree_id = $1 and j.parent_id is not null and (${DUE}) is not true) as keeps`,
)

/** Says in the log what the rows of `gone` were; receipts go with their parents. */
function tellGone(t: TableNames): string {
  return `event as (
    ${insertEvents(t)}
    select 'deleted', id, tree_id, parent_id, type, state, null, phase, wave, attempt, version + 1, $2,
      'kept long enough', null
    from gone
  )`
}

// A row that was locked may have got descendants since it was found: only a statement behind the lock knows.
const deleteLeaves = statement<{ id: string }>(
  'retention.delete-leaves',
  (t) => `
  with gone as (
    delete from ${t.job} j
    where j.id = any($1::uuid[]) and j.state not in (${ACTIVE_SQL})
      and (select d.id from ${t.job} d where d.tree_id = j.id and d.parent_id is not null limit 1) is null
    returning j.*
  ),
  ${tellGone(t)}
  select id from gone`,
)

const deleteWholeTree = statement<{ deleted: number }>(
  'retention.delete-tree',
  (t) => `
  with below as (delete from ${t.job} j where j.tree_id = $1 and j.parent_id is not null returning j.*),
  root as (delete from ${t.job} j where j.id = $1 returning j.*),
  gone as (select * from below union all select * from root),
  ${tellGone(t)}
  select count(*)::int as deleted from gone`,
)
