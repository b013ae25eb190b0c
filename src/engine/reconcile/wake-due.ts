import { statement } from '../../db/statement.ts'
import { childSets } from '../child-set.ts'
import { each } from '../maintenance/each.ts'
import { MAINTENANCE_ACTOR, type MaintenanceContext } from '../maintenance/handler.ts'
import { wakeParent } from '../wake.ts'
import { putRight } from './recount.ts'

/** Of one tick. */
export interface Tally {
  /** How many parents it may still wake. */
  budget: number
  /** Parents that it found to be due, and that are not delivered (yet). */
  stuck: number
}

/**
 * Wakes parents that were found to be due, as far as the tick's budget goes, and returns the others. Their child set keys
 * are read first, in one statement; then each is woken in a transaction of its own, under its lock, and only for that key.
 * One whose key is another by then is left to whoever changed it: superseded. One that does not wait any more was woken by
 * somebody else: deduplicated.
 */
export async function wakeDue(context: MaintenanceContext, tally: Tally, due: readonly string[]): Promise<string[]> {
  const { db, metrics, signal } = context
  const ids = due.slice(0, tally.budget)
  tally.budget -= ids.length
  tally.stuck += due.length
  metrics.wakeCandidates.inc(ids.length)
  const sets = ids.length === 0 ? [] : await db.query(readKeys, [ids])
  const byId = new Map(sets.map((set) => [set.id, set]))
  await each(ids, signal, async (id) => {
    await wakeOne(context, id, byId.get(id))
    tally.stuck -= 1
  })
  return due.slice(ids.length)
}

async function wakeOne(context: MaintenanceContext, id: string, set: ReadChildSet | undefined): Promise<void> {
  const { db, metrics, changed } = context
  if (set === undefined) return metrics.wakeDeduplicated.inc()
  if (set.open > 0) {
    metrics.wakeSuperseded.inc()
    return putRight(context, [id])
  }
  const expectedKey = set.childSetKey
  const wake = await wakeParent(db, id, { source: 'reconciler', actor: MAINTENANCE_ACTOR, expectedKey })
  if (wake === undefined) return metrics.wakeDeduplicated.inc()
  if (wake.drift !== 0) metrics.driftRepaired.inc()
  if (wake.outcome === 'woken') changed()
  else if (wake.outcome === 'withheld') metrics.wakeAssigneeUnresolved.inc()
  else metrics.wakeSuperseded.inc()
}

interface ReadChildSet {
  id: string
  open: number
  childSetKey: string
}

const readKeys = statement<ReadChildSet>(
  'reconcile.read-keys',
  (t) => `
  with ${childSets(t)}
  select id, open, child_set_key as "childSetKey" from child_set`,
)
