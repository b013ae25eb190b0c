import { statement } from '../../db/statement.ts'
import type { JobTable } from '../../db/tables.ts'
import { type Tx, transaction } from '../../db/transaction.ts'
import { failFailingParents } from '../cascade.ts'
import { findPlace, lockJobs, lockTreeShared } from '../locks.ts'
import { each } from '../maintenance/each.ts'
import { MAINTENANCE_ACTOR, type MaintenanceContext } from '../maintenance/handler.ts'
import { gainMembers } from '../membership.ts'
import { markUnborne } from '../settle/tolerance.ts'
import { ACTIVE_SQL, isTerminal, type JobState } from '../states.ts'

/** What a look at a parent and its children's rows came to. */
export interface Looked {
  id: string
  /** By how much its counter of open children was too high. */
  drift: number
  /**
   * `fail`: it is marked to fail for a child, and no attempt holds it. `wake`: it waits, and its counter was put down to
   * none by this look; those that it shows by itself are candidates.
   */
  next: 'wake' | 'fail' | null
}

/**
 * Puts the counters of jobs right by their children's rows, each in a transaction of its own, counts the wrong ones, and
 * fails the parents that do not bear what those rows show.
 */
export async function putRight(context: MaintenanceContext, ids: readonly string[]): Promise<void> {
  await each(ids, context.signal, async (id) => {
    const looked = await lookAtOne(context, id)
    if (looked) await follow(context, [looked])
  })
}

/** {@link lookAtLocked} for one parent in a transaction of its own, waiting for its locks. Undefined: it is gone. */
export async function lookAtOne(
  { db }: MaintenanceContext,
  id: string,
  failedIds: readonly string[] = [],
): Promise<Looked | undefined> {
  return transaction(db, async (tx) => {
    const [found] = await tx.query(findPlace, [id])
    if (!found) return undefined
    await lockTreeShared(tx, found.tree_id)
    const row = (await lockJobs(tx, [id])).get(id)
    return row && (await lookAtLocked(tx, [row], failedIds))[0]
  })
}

/** Counts what was put right, and fails the parents that are to. */
export async function follow(context: MaintenanceContext, looked: readonly Looked[]): Promise<void> {
  context.metrics.driftRepaired.inc(looked.filter(({ drift }) => drift !== 0).length)
  const failing = looked.filter(({ next }) => next === 'fail')
  await each(failing, context.signal, async ({ id }) => {
    const { failed } = await failFailingParents(context.db, [id], { actor: MAINTENANCE_ACTOR })
    if (failed.length > 0) context.changed()
  })
}

/**
 * Puts the counters of jobs right, whose rows this transaction has locked by an earlier statement. Children that are open
 * and were not counted are gained as if a verb had opened them: a wake that was given before and not yet claimed is
 * withdrawn. Then marks those that do not bear a child's failure, be it by the rows of their present wave, or of one of
 * these children that is known to have failed just now.
 */
export async function lookAtLocked(tx: Tx, rows: readonly JobTable[], failedIds: readonly string[]): Promise<Looked[]> {
  const counts = new Map((await tx.query(countMembers, [rows.map((row) => row.id)])).map((count) => [count.id, count]))
  const drifts = new Map(rows.map((row) => [row.id, row.open_children - counts.get(row.id)!.open]))
  const tooFew = rows.filter((row) => drifts.get(row.id)! < 0)
  for (const row of tooFew) await gain(tx, row, counts.get(row.id)!)
  const wrong = rows.filter((row) => drifts.get(row.id)! > 0 || row.child_count !== counts.get(row.id)!.members)
  const others = wrong.filter((row) => !tooFew.includes(row)).map((row) => counts.get(row.id)!)
  if (others.length > 0) {
    const columns = [others.map(({ id }) => id), others.map(({ members }) => members), others.map(({ open }) => open)]
    await tx.query(setCounters, columns)
  }
  const active = rows.filter((row) => !isTerminal(row.state as JobState))
  const unmarked = active.filter((row) => row.failing_child_id === null).map((row) => row.id)
  const marked = new Set<string>()
  if (unmarked.length > 0) {
    if (failedIds.length > 0) for (const { id } of await tx.query(markFailing, [unmarked, failedIds])) marked.add(id)
    for (const id of (await markUnborne(tx, unmarked)).keys()) marked.add(id)
  }
  return rows.map((row) => {
    const drift = drifts.get(row.id)!
    if (!active.includes(row)) return { id: row.id, drift, next: null }
    const failing = row.failing_child_id !== null || marked.has(row.id)
    // One that runs fails at the end of its attempt.
    if (failing) return { id: row.id, drift, next: row.state === 'running' ? null : 'fail' }
    const wakes = row.state === 'waiting' && drift > 0 && row.open_children === drift
    return { id: row.id, drift, next: wakes && row.archived_at === null && !row.ephemeral ? 'wake' : null }
  })
}

async function gain(tx: Tx, row: JobTable, counted: Count): Promise<void> {
  await gainMembers(tx, row.id, {
    members: 0,
    // A counter below nothing says of no child that it was opened.
    opened: Math.min(counted.open - row.open_children, counted.open),
    counted,
    actor: MAINTENANCE_ACTOR,
    reason: 'child reopened or added by SQL: wake withdrawn',
  })
}

interface Count {
  id: string
  members: number
  open: number
}

// Each parent's children through the index of children: joined as sets, the planner reads whole tables.
const countMembers = statement<Count>(
  'reconcile.count-members',
  (t) => `
  select p.id, counted.members, counted.open from unnest($1::uuid[]) p(id)
  cross join lateral (
    select count(*)::int as members, (count(*) filter (where c.state in (${ACTIVE_SQL})))::int as open
    from ${t.job} c where c.parent_id = p.id and c.archived_at is null) counted`,
)

const setCounters = statement(
  'reconcile.set-counters',
  (t) => `
  update ${t.job} j set child_count = c.members, open_children = c.open
  from unnest($1::uuid[], $2::int[], $3::int[]) c(id, members, open) where j.id = c.id and j.id = any($1::uuid[])`,
)

// The parents' rows are locked; the trees' locks keep verbs from reopening the children meanwhile.
const markFailing = statement<{ id: string }>(
  'reconcile.mark-failing',
  (t) => `
  update ${t.job} p set failing_child_id = c.id
  from (
    select distinct on (c.parent_id) c.id, c.parent_id from ${t.job} c
    where c.id = any($2::uuid[]) and c.parent_id = any($1::uuid[]) and c.state = 'failed' and c.archived_at is null
      and c.on_child_failure = 'fail_parent'
    order by c.parent_id, c.id) c
  where p.id = c.parent_id and p.id = any($1::uuid[])
  returning p.id`,
)
