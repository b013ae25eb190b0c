import { Counter, Gauge, Histogram, Registry } from 'prom-client'

/** The figures of one engine, in a registry of its own: two engines in a process do not mix. */
export type EngineMetrics = ReturnType<typeof createMetrics>

/** Makes an engine's figures, all zero. Names are public: dashboards are built on them. */
export function createMetrics() {
  const registry = new Registry()
  const registers = [registry]
  const counter = (name: string, help: string) => new Counter({ name: `coppice_${name}`, help, registers })
  const gauge = (name: string, help: string) => new Gauge({ name: `coppice_${name}`, help, registers })
  return {
    registry,
    wakeCandidates: counter(
      'parent_wake_candidates_total',
      'Parents that the reconciler looked at because they may be due a wake',
    ),
    wakeEmitted: new Counter({
      name: 'coppice_parent_wake_emitted_total',
      help: 'Wakes delivered by this process',
      labelNames: ['source'] as const,
      registers,
    }),
    wakeDeduplicated: counter(
      'parent_wake_deduplicated_total',
      'Wakes that somebody else had delivered by the time of the lock',
    ),
    wakeSuperseded: counter(
      'parent_wake_superseded_total',
      'Candidates whose child set changed between the look and the lock',
    ),
    wakeAssigneeUnresolved: counter(
      'parent_wake_assignee_unresolved_total',
      'Assignees, not active or unknown, that a tick found wakes to be withheld for; and wakes withheld under its hands',
    ),
    driftRepaired: counter(
      'parent_wake_drift_repaired_total',
      'Counters of open children that were wrong and put right',
    ),
    stuck: gauge('parent_stuck', 'Parents whose wake is due and was not delivered, at the last tick'),
    oldestWaiting: gauge('parent_oldest_waiting_seconds', 'Age of the oldest wait, at the last tick'),
    tick: new Histogram({
      name: 'coppice_reconciler_tick_seconds',
      help: 'Time of a tick of the parent-wake reconciler',
      buckets: [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5],
      registers,
    }),
    auditRound: gauge(
      'parent_audit_round_seconds',
      'How long the last round of the audit over all waiting parents took',
    ),
    orphansCancelled: counter('orphans_cancelled_total', 'Jobs that the orphan sweep cancelled'),
    retentionJobsDeleted: counter('retention_jobs_deleted_total', 'Jobs that were deleted for their age'),
    retentionEventsDeleted: counter('retention_events_deleted_total', 'Events that were deleted for their age'),
    eventRetentionHeld: gauge(
      'event_retention_held_seconds',
      'How much longer than asked for events are kept, because a transaction was open',
    ),
    staleRefused: counter('stale_results_refused_total', 'Results of attempts that no longer held their job'),
  }
}
