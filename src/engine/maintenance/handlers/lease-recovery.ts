import { recoverLostJobs } from '../../lease/recovery.ts'
import { MAINTENANCE_ACTOR, type MaintenanceHandler } from '../handler.ts'

/** Gives back what dead workers held. `intervalMs`: the heartbeat's. */
export function leaseRecovery(intervalMs: number): MaintenanceHandler {
  return {
    name: 'lease-recovery',
    intervalMs,
    // A process killed in the middle of recovery is declared dead in two intervals: no longer should its own jobs wait.
    turnMs: Math.max(1000, 2 * intervalMs),
    async run({ db, logger, signal, changed }) {
      const { retried, failed } = await recoverLostJobs(db, { actor: MAINTENANCE_ACTOR, logger, signal })
      if (retried + failed > 0) changed()
    },
  }
}
