import type { Json } from '../../job.ts'
import { cancelOrphans, endedParents, familiesOf, type OrphanFamily } from '../../orphan-sweep.ts'
import { lookForOrphans, type OrphanPlace } from '../../orphans.ts'
import { each } from '../each.ts'
import { MAINTENANCE_ACTOR, type MaintenanceHandler } from '../handler.ts'

/** Parents with active children that one run looks at: some 10 ms. */
const DEFAULT_SLICE = 2000
/** Most orphans, and most ended parents, of one run. */
const LIMIT = 500

/**
 * Cancels active jobs whose parent has ended without keeping them, or is gone: what another road than the verbs, such as
 * SQL by hand, has left behind. Parents that have ended and count open children are found at once; for those whose
 * counter or row tells nothing, a rotating slice of all parents with active children is looked at.
 */
export function orphanSweep(intervalMs: number, slice = DEFAULT_SLICE): MaintenanceHandler {
  return {
    name: 'orphan-sweep',
    intervalMs,
    async run({ db, logger, metrics, signal, changed, state, remember }) {
      const sweep = async (family: OrphanFamily) => {
        const cancelled = await cancelOrphans(db, family, MAINTENANCE_ACTOR)
        if (cancelled === 0) return
        metrics.orphansCancelled.inc(cancelled)
        logger.warn(
          { parent: `JB_${family.parentId}`, cancelled },
          'Orphans cancelled: their parent has ended or is gone',
        )
        changed()
      }
      const sweepSlice = async () => {
        const look = { from: placeOf(state), to: null, backwards: false, size: LIMIT, parents: slice }
        const { orphans, next } = await lookForOrphans(db, look)
        // Also behind one that cannot be swept: the others have their turn all the same.
        const goOn = async () => {
          if (!signal.aborted) await remember(next && { parentId: next.parentId, id: next.id })
        }
        await each(familiesOf(orphans), signal, sweep).finally(goOn)
      }
      await each(await endedParents(db, LIMIT), signal, sweep).finally(sweepSlice)
    },
  }
}

/** Where the last run left off; null: at the beginning. */
function placeOf(state: Json): OrphanPlace | null {
  if (state === null || typeof state !== 'object' || Array.isArray(state)) return null
  const { parentId, id } = state
  return typeof parentId === 'string' && typeof id === 'string' ? { parentId, id } : null
}
