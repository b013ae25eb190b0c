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
import type { HandlerName } from './intervals.ts'

/** What the handlers are made with. */
export interface HandlerSettings {
  heartbeatMs: number
  retention: Retention
  /** In ms, in place of the handlers' own. */
  intervals?: Partial<Record<HandlerName, number>>
}

/** Every handler of the maintenance loop. To add one: write it in `handlers/`, and name it here. */
export function maintenanceHandlers({ heartbeatMs, retention, intervals = {} }: HandlerSettings): MaintenanceHandler[] {
  const { events, ...ages } = retention
  const keepsJobs = Object.values(ages).every((age) => age === null)
  const every = (name: HandlerName, ms: number) => intervals[name] ?? ms
  return [
    leaseRecovery(every('lease-recovery', heartbeatMs)),
    attemptTimeouts(every('attempt-timeouts', heartbeatMs)),
    waitTimeouts(every('wait-timeouts', 1000)),
    parentWakes(every('parent-wakes', 1000)),
    failingParents(every('failing-parents', 1000)),
    deadWorkers(every('dead-workers', 10 * heartbeatMs)),
    orphanSweep(every('orphan-sweep', 10_000)),
    ...(keepsJobs ? [] : [jobRetention(every('job-retention', 60_000), ages)]),
    ...(events === null ? [] : [eventRetention(every('event-retention', 60_000), events)]),
  ]
}
