import { forgetMarks, leaveMark, markOf, pruneEvents } from '../../retention/prune-events.ts'
import type { MaintenanceHandler } from '../handler.ts'

const BATCH = 5000
/** Time after which a run leaves the rest to the next, in ms. */
const BUDGET_MS = 20_000

/** Leaves a mark in the log each time it runs, and deletes the events that are older than `keepMs` by their marks. */
export function eventRetention(intervalMs: number, keepMs: number, batch = BATCH): MaintenanceHandler {
  return {
    name: 'event-retention',
    intervalMs,
    async run({ db, metrics, signal }) {
      await leaveMark(db)
      const mark = await markOf(db, keepMs)
      metrics.eventRetentionHeld.set(mark?.heldSeconds ?? 0)
      if (!mark?.due) return
      const end = performance.now() + BUDGET_MS
      for (let from = '0', full = true; full && !signal.aborted && performance.now() < end; ) {
        const { deleted, last } = await pruneEvents(db, { floor: mark.floor, from, limit: batch })
        metrics.retentionEventsDeleted.inc(deleted)
        from = last
        full = deleted === batch
      }
      await forgetMarks(db, keepMs)
    },
  }
}
