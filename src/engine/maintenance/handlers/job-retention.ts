import type { Json } from '../../job.ts'
import { dueRoots, rootlessTrees, undatedRoots } from '../../retention/due-trees.ts'
import { type Ages, pruneLeaves, pruneTree } from '../../retention/prune-jobs.ts'
import { TERMINAL_STATES, type TerminalState } from '../../states.ts'
import { each } from '../each.ts'
import type { MaintenanceContext, MaintenanceHandler } from '../handler.ts'

/** Roots of one page; those without descendants are deleted in one transaction. */
const PAGE = 500
/** Trees that one run looks at for whether their root is still there. */
const TREES = 2000
/** Time after which a run leaves the rest to the next, in ms; a tree under way is ended. */
const BUDGET_MS = 40_000
/** Trees that are deleted at the same time. */
const LANES = 4
/** The deletion of the largest tree. */
const DEADLINE_MS = 660_000

type Place = { place: string; id: string }
/** Where each search goes on: trees that are not due yet, for something below, must not keep later ones waiting. */
type Places = Partial<Record<TerminalState, Place | null>> & { rootless?: string | null }

/** Deletes trees that have ended longer ago than they are to be kept. */
export function jobRetention(intervalMs: number, ages: Ages, page = PAGE): MaintenanceHandler {
  return {
    name: 'job-retention',
    intervalMs,
    deadlineMs: DEADLINE_MS,
    async run(context) {
      const { db, signal, remember } = context
      const end = performance.now() + BUDGET_MS
      const over = () => signal.aborted || performance.now() > end
      const places: Places = placesOf(context.state)
      for (const state of TERMINAL_STATES) {
        const age = ages[state]
        if (age === null) continue
        let after = places[state] ?? null
        do {
          const roots = await dueRoots(db, state, { age, after, limit: page })
          const leaves = roots.filter((root) => !root.hasDescendants).map((root) => root.id)
          count(context, await pruneLeaves(db, leaves, ages))
          await pruneTrees(
            context,
            ages,
            roots.filter((root) => root.hasDescendants).map((root) => root.id),
          )
          after = roots.length < page ? null : roots.at(-1)!
        } while (after !== null && !over())
        places[state] = after && { place: after.place, id: after.id }
      }
      await pruneTrees(context, ages, await undatedRoots(db, page))
      const { ids, next } = await rootlessTrees(db, { after: places.rootless ?? null, trees: TREES })
      await pruneTrees(context, ages, ids)
      places.rootless = next
      await remember(places as Json)
    },
  }
}

async function pruneTrees(context: MaintenanceContext, ages: Ages, ids: readonly string[]): Promise<void> {
  const lanes = Array.from({ length: LANES }, (_, lane) => ids.filter((_, index) => index % LANES === lane))
  const ends = await Promise.allSettled(
    lanes.map((lane) =>
      each(lane, context.signal, async (id) => count(context, await pruneTree(context.db, id, ages))),
    ),
  )
  for (const end of ends) if (end.status === 'rejected') throw end.reason
}

function count({ metrics, changed }: MaintenanceContext, deleted: number): void {
  if (deleted === 0) return
  metrics.retentionJobsDeleted.inc(deleted)
  changed()
}

function placesOf(state: Json): Places {
  return state !== null && typeof state === 'object' && !Array.isArray(state) ? (state as Places) : {}
}
