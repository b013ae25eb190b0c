import { isConnectionError } from '../../db/connection-errors.ts'
import { planOnce } from '../../db/transaction.ts'
import type { Json } from '../job.ts'
import type { MaintenanceContext } from '../maintenance/handler.ts'
import { type AuditProgress, auditNext } from './audit.ts'
import { findCandidates } from './candidates.ts'
import { firstLook } from './first-look.ts'
import { followMarks } from './marks.ts'
import { putRight } from './recount.ts'
import type { RestingLog } from './resting.ts'
import { type Tally, wakeDue } from './wake-due.ts'

/** What one tick leaves to the next, in whichever process. */
interface TickState extends AuditProgress {
  /** The last candidate, if there were more than fit into the tick. */
  after: string | null
  /** Parents found stuck: for who reads the figures of the installation. */
  stuck: number
}

/**
 * One tick of the parent-wake reconciler: finds parents whose children have all ended and that nobody woke, by their
 * counters, by the marks of plain SQL, and by the rotating audit; wakes at most `limit` of them. Whatever found a parent,
 * it is its children's rows that wake it. One part that fails keeps no other from its turn.
 */
export async function reconcile(context: MaintenanceContext, resting: RestingLog, limit: number): Promise<void> {
  const { db, metrics } = context
  const stopTimer = metrics.tick.startTimer()
  const tally: Tally = { budget: limit, stuck: 0 }
  try {
    const [look] = await db.query(firstLook)
    const { waiting, marked, oldest, now } = look!
    metrics.oldestWaiting.set(oldest)
    const state = stateOf(context.state)
    const next: TickState = { after: null, audit: waiting ? state.audit : null, stuck: 0 }
    const parts = waiting
      ? [
          () => wakeCandidates(context, { resting, tally, limit, after: state.after, next }),
          async () => marked && followMarks(context, tally),
          () => auditNext(context, { tally, from: state.audit, now, next }),
        ]
      : [
          () => resting.tell(context, { count: 0, some: [] }),
          async () => marked && followMarks(context, tally),
          async () => metrics.auditRound.set(0),
        ]
    const errors: unknown[] = []
    for (const part of parts) {
      if (context.signal.aborted) break
      await part().catch((error: unknown) => {
        if (isConnectionError(error)) throw error
        errors.push(error)
      })
    }
    next.stuck = tally.stuck
    if (JSON.stringify(next) !== JSON.stringify(state)) await context.remember(next as unknown as Json)
    if (errors.length > 0) throw errors[0]
  } finally {
    metrics.stuck.set(tally.stuck)
    stopTimer()
  }
}

/** The parents that their counters show. Those of a wrong counter are put right instead. */
async function wakeCandidates(
  context: MaintenanceContext,
  given: { resting: RestingLog; tally: Tally; limit: number; after: string | null; next: TickState },
): Promise<void> {
  const { resting, tally, limit, after, next } = given
  const {
    candidates,
    more,
    total,
    resting: atRest,
  } = await planOnce(context.db, (tx) => findCandidates(tx, { limit, after }))
  // Before they are tried: should they fail again and again, the others have their turn all the same.
  if (more) next.after = candidates.at(-1)!.id
  await resting.tell(context, atRest)
  // Where somebody wakes them meanwhile, there may be fewer by now.
  tally.stuck += Math.max(0, total - candidates.length)
  const idsWith = (open: boolean) => candidates.filter((candidate) => candidate.open === open).map(({ id }) => id)
  await putRight(context, idsWith(true)).finally(() => wakeDue(context, tally, idsWith(false)))
}

/** What an older or newer program may have remembered is not trusted. */
function stateOf(state: Json): TickState {
  const { after = null, audit = null, stuck = 0 } = (state ?? {}) as Partial<TickState>
  return { after, audit, stuck }
}
