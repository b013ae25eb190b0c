import { RestingLog } from '../../reconcile/resting.ts'
import { reconcile } from '../../reconcile/tick.ts'
import type { MaintenanceHandler } from '../handler.ts'

/** Most wakes of a tick. */
const LIMIT = 100

/** The parent-wake reconciler: wakes parents that are due and that nobody woke. */
export function parentWakes(intervalMs: number, limit = LIMIT): MaintenanceHandler {
  const resting = new RestingLog()
  return {
    name: 'parent-wakes',
    intervalMs,
    // Another process takes over within two seconds of one that was killed in the middle of a tick.
    turnMs: 1000,
    run: (context) => reconcile(context, resting, limit),
  }
}
