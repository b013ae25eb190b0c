import type { Retention } from '../retention/options.ts'
import type { MaintenanceHandler } from './handler.ts'
import { attemptTimeouts } from './handlers/attempt-timeouts.ts'
import { deadWorkers } from './handlers/dead-workers.ts'
import { eventRetention } from './handlers/event-retention.ts'
import { failingParents } from './handlers/failing-parents.ts'
import { jobRetention } from './handlers/job-retention.ts'
import { leaseRecovery } from './handlers/lease-recovery.ts'
import { orphanSweep } from './handlers/orphan-sweep.ts'
import { parentWakes } from './handlers/parent-wakes.ts'
import { waitTimeouts } from './handlers/wait-timeouts.ts'

/** What the handlers are made with. */
export interface HandlerSettings {
  heartbeatMs: number
  retention: Retention
}

/** Every handler of the maintenance loop. To add one: write it in `handlers/`, and name it here. */
export function maintenanceHandlers({ heartbeatMs, retention }: HandlerSettings): MaintenanceHandler[] {
  const { events, ...ages } = retention
  const keepsJobs = Object.values(ages).every((age) => age === null)
  return [
    leaseRecovery(heartbeatMs),
    attemptTimeouts(heartbeatMs),
    waitTimeouts(1000),
    parentWakes(1000),
    failingParents(1000),
    deadWorkers(10 * heartbeatMs),
    orphanSweep(10_000),
    ...(keepsJobs ? [] : [jobRetention(60_000, ages)]),
    ...(events === null ? [] : [eventRetention(60_000, events)]),
  ]
}
