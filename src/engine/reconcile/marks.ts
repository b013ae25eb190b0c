import { isConnectionError } from '../../db/connection-errors.ts'
import type { Database } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import type { JobTable } from '../../db/tables.ts'
import { transaction } from '../../db/transaction.ts'
import { treeBucket } from '../locks.ts'
import { each } from '../maintenance/each.ts'
import type { MaintenanceContext } from '../maintenance/handler.ts'
import { follow, type Looked, lookAtLocked, lookAtOne } from './recount.ts'
import { type Tally, wakeDue } from './wake-due.ts'

/** Marks read in a tick: plain SQL that moves many children of one parent leaves one for each. */
const MARKS = 10_000
/** Parents that one transaction looks at. */
const TOGETHER = 200
/** How long a tick goes on to look at marked parents, in ms; at some of them it looks in any case. */
const TIME_MS = 500

/**
 * Looks at the parents that plain SQL has marked: puts their counters right, fails those with a child whose failure they
 * do not bear, and wakes those that are due. Marks are deleted once the parents' rows tell the same: what is left to do is
 * found by their counters, should this process die or the tick's budget be spent. They are deleted one by one, since one
 * with a lower id may be committed later.
 */
export async function followMarks(context: MaintenanceContext, tally: Tally): Promise<void> {
  const { db, signal } = context
  const until = performance.now() + TIME_MS
  const parents = new Map<string, Mark>()
  for (const mark of await db.query(readMarks, [MARKS])) parents.set(mark.parentId, mark)
  const marks = [...parents.values()]
  const due: string[] = []
  const errors: unknown[] = []
  for (let at = 0; at < marks.length && !signal.aborted; at += TOGETHER) {
    if (at > 0 && performance.now() > until) break
    await followSome(context, marks.slice(at, at + TOGETHER), due).catch((error: unknown) => {
      if (isConnectionError(error)) throw error
      errors.push(error)
    })
  }
  await wakeDue(context, tally, due)
  if (errors.length > 0) throw errors[0]
}

/** All marks of one parent. */
interface Mark {
  parentId: string
  treeId: string | null
  ids: string[]
  failedChildIds: string[]
}

/** Looks at some parents together; at those whose locks are not to be had at once, or if that fails, one by one. */
async function followSome(context: MaintenanceContext, marks: readonly Mark[], due: string[]): Promise<void> {
  const { db, signal } = context
  const done: string[] = []
  const told = async (looked: readonly Looked[]) => {
    due.push(...looked.filter(({ next }) => next === 'wake').map(({ id }) => id))
    await follow(context, looked)
  }
  const together = await lookTogether(db, marks)
  const seen = new Set(together.map(({ id }) => id))
  const settle = async () => {
    const rest = marks.filter((mark) => !seen.has(mark.parentId))
    for (const mark of marks) if (seen.has(mark.parentId)) done.push(...mark.ids)
    await told(together).finally(() =>
      each(rest, signal, async (mark) => {
        const looked = await lookAtOne(context, mark.parentId, mark.failedChildIds).catch((error: unknown) => {
          // One that cannot be followed would come first for ever: the audit finds the parent, too.
          if (!isConnectionError(error)) done.push(...mark.ids)
          throw error
        })
        done.push(...mark.ids)
        if (looked) await told([looked])
      }),
    )
  }
  await settle().finally(() => db.query(deleteMarks, [done]))
}

async function lookTogether(db: Database, marks: readonly Mark[]): Promise<Looked[]> {
  const known = marks.filter((mark) => mark.treeId !== null)
  if (known.length < 2) return []
  const parameters = [db.lockSpace, known.map((mark) => treeBucket(mark.treeId!)), known.map((mark) => mark.parentId)]
  return transaction(db, async (tx) => {
    const rows = await tx.query(holdMarked, parameters)
    return rows.length === 0
      ? []
      : lookAtLocked(
          tx,
          rows,
          known.flatMap((mark) => mark.failedChildIds),
        )
  }).catch((error: unknown) => {
    if (isConnectionError(error)) throw error
    return []
  })
}

// The oldest marks, by parent. The tree of one that is gone is not known.
const readMarks = statement<Mark>(
  'reconcile.read-marks',
  (t) => `
  with mark as (select * from ${t.wakeMark} order by id limit $1),
  parent as materialized (
    select parent_id, min(id) as first, array_agg(id::text) as ids,
      coalesce(array_agg(failed_child_id) filter (where failed_child_id is not null), '{}') as failed
    from mark group by parent_id
  )
  select p.parent_id as "parentId", row.tree_id as "treeId", p.ids, p.failed as "failedChildIds"
  from parent p left join lateral (select j.tree_id from ${t.job} j where j.id = p.parent_id limit 1) row on true
  order by p.first`,
)

const deleteMarks = statement('reconcile.delete-marks', (t) => `delete from ${t.wakeMark} where id = any($1::bigint[])`)

// Tree locks and row locks are tried, never waited for: in whatever order, nobody is kept waiting by this one's waiting.
const holdMarked = statement<JobTable>(
  'reconcile.hold-marked',
  (t) => `
  with wanted as materialized (
    select w.* from unnest($2::int[], $3::uuid[]) as w(bucket, id)
    where pg_try_advisory_xact_lock_shared($1, w.bucket)
  )
  select row.* from wanted w
  cross join lateral (select * from ${t.job} j where j.id = w.id for no key update skip locked) row`,
)
