import { isConnectionError } from '../../db/connection-errors.ts'
import type { Database } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import type { JobTable } from '../../db/tables.ts'
import { type Tx, transaction } from '../../db/transaction.ts'
import { failFailingParents } from '../cascade.ts'
import { each } from '../maintenance/each.ts'
import { MAINTENANCE_ACTOR, type MaintenanceContext } from '../maintenance/handler.ts'
import { judgeTolerance } from '../settle/tolerance.ts'
import { isTerminal, type JobState } from '../states.ts'
import { lockForCount, recountLocked } from './recount.ts'
import { type Tally, wakeDue } from './wake-due.ts'

/** Marks read in a tick: plain SQL that moves many children of one parent leaves one for each. */
const MARKS = 10_000
/** Parents that are looked at in a tick for their marks. */
const PARENTS = 100

/**
 * Looks at the parents that plain SQL has marked: puts their counters right, fails those with a child whose failure they
 * do not bear, and wakes those that are due. Marks are deleted once the parents' rows tell the same: what is left to do is
 * found by their counters, should this process die or the tick's budget be spent. They are deleted one by one, since one
 * with a lower id may be committed later.
 */
export async function followMarks(context: MaintenanceContext, tally: Tally): Promise<void> {
  const { db, metrics, signal } = context
  const marks = await db.query(readMarks, [MARKS])
  const parents = new Map<string, Mark[]>()
  for (const mark of marks) {
    const own = parents.get(mark.parentId)
    if (own) own.push(mark)
    else if (parents.size < PARENTS) parents.set(mark.parentId, [mark])
  }
  const due: string[] = []
  const failing: string[] = []
  const done: string[] = []
  await each([...parents], signal, async ([parentId, own]) => {
    const ids = own.map((mark) => mark.id)
    const { drift, next } = await followMark(db, parentId, own).catch((error: unknown) => {
      // One that cannot be followed would come first for ever: the audit finds the parent, too.
      if (!isConnectionError(error)) done.push(...ids)
      throw error
    })
    done.push(...ids)
    if (drift !== 0) metrics.driftRepaired.inc()
    if (next === 'wake') due.push(parentId)
    if (next === 'fail') failing.push(parentId)
  }).finally(() => db.query(deleteMarks, [done]))
  const { failed } = await failFailingParents(db, failing, { actor: MAINTENANCE_ACTOR })
  if (failed.length > 0) context.changed()
  await wakeDue(context, tally, due)
}

interface Mark {
  id: string
  parentId: string
  failedChildId: string | null
}

interface Followed {
  drift: number
  next: 'wake' | 'fail' | null
}

async function followMark(db: Database, parentId: string, marks: readonly Mark[]): Promise<Followed> {
  const failed = marks.map((mark) => mark.failedChildId).filter((id) => id !== null)
  return transaction(db, async (tx): Promise<Followed> => {
    const row = await lockForCount(tx, parentId)
    if (!row) return { drift: 0, next: null }
    const drift = await recountLocked(tx, row)
    if (isTerminal(row.state as JobState)) return { drift, next: null }
    const failing = row.failing_child_id !== null || (await bearsNot(tx, row, failed))
    // One that runs fails at the end of its attempt.
    if (failing) return { drift, next: row.state === 'running' ? null : 'fail' }
    const wakes = row.state === 'waiting' && row.open_children === drift && row.archived_at === null && !row.ephemeral
    return { drift, next: wakes ? 'wake' : null }
  })
}

/** Whether the parent is to fail for a child: for one that takes its parent with it, or for more than it tolerates. */
async function bearsNot(tx: Tx, row: JobTable, failedIds: readonly string[]): Promise<boolean> {
  if (failedIds.length > 0 && (await tx.query(markFailing, [row.id, failedIds])).length > 0) return true
  if (row.failure_tolerance === null) return false
  const { id, state, open_children, assignee_id } = row
  const judged = await judgeTolerance(tx, [
    { id, state, open_children, assignee_id, failing_child_id: null, judge: true },
  ])
  return judged.some((parent) => parent.failing_child_id !== null)
}

const readMarks = statement<Mark>(
  'reconcile.read-marks',
  (t) => `
  select id, parent_id as "parentId", failed_child_id as "failedChildId" from ${t.wakeMark} order by id limit $1`,
)

const deleteMarks = statement('reconcile.delete-marks', (t) => `delete from ${t.wakeMark} where id = any($1::bigint[])`)

// The parent's row is locked; the tree's lock keeps verbs from reopening the child meanwhile.
const markFailing = statement<{ id: string }>(
  'reconcile.mark-failing',
  (t) => `
  update ${t.job} p set failing_child_id = c.id
  from (
    select c.id from ${t.job} c
    where c.id = any($2::uuid[]) and c.parent_id = $1 and c.state = 'failed' and c.archived_at is null
      and c.on_child_failure = 'fail_parent'
    order by c.id limit 1) c
  where p.id = $1
  returning p.id`,
)
