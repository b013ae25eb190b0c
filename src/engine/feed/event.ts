import type { Json } from '../job.ts'
import type { JobState, Phase } from '../states.ts'

/** What an event tells. */
export const EVENT_KINDS = ['created', 'moved', 'progress', 'archived', 'unarchived', 'deleted'] as const
export type JobEventKind = (typeof EVENT_KINDS)[number]

/**
 * One row of the event log: what happened to a job, when, by whom. Ids of jobs are bare UUIDs. Subscribers
 * share these objects: do not change them.
 */
export interface JobEvent {
  /** A decimal number; grows per job, not across jobs. */
  id: string
  kind: JobEventKind
  jobId: string
  treeId: string
  parentId: string | null
  type: string
  /** State before; null when the job was created. */
  from: JobState | null
  /** State after; null when the job was deleted. */
  to: JobState | null
  phase: Phase
  wave: number
  attempt: number
  /** The job's version after it. */
  version: number
  /** By the database clock, to the millisecond. */
  at: Date
  actor: string
  reason: string | null
  detail: Json
}
