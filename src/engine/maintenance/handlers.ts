import type { MaintenanceHandler } from './handler.ts'
import { attemptTimeouts } from './handlers/attempt-timeouts.ts'
import { deadWorkers } from './handlers/dead-workers.ts'
import { failingParents } from './handlers/failing-parents.ts'
import { leaseRecovery } from './handlers/lease-recovery.ts'
import { orphanSweep } from './handlers/orphan-sweep.ts'
import { waitTimeouts } from './handlers/wait-timeouts.ts'

/** Every handler of the maintenance loop. To add one: write it in `handlers/`, and name it here. */
export function maintenanceHandlers({ heartbeatMs }: { heartbeatMs: number }): MaintenanceHandler[] {
  return [
    leaseRecovery(heartbeatMs),
    attemptTimeouts(heartbeatMs),
    waitTimeouts(1000),
    failingParents(1000),
    deadWorkers(10 * heartbeatMs),
    orphanSweep(10_000),
  ]
}
