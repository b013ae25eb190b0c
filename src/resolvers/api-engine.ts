import type { Engine } from '../engine/engine.ts'

/** What the API needs of an engine. */
export type ApiEngine = Pick<
  Engine,
  | 'database'
  | 'jobs'
  | 'doorbell'
  | 'feed'
  | 'watchTree'
  | 'stats'
  | 'watchStats'
  | 'metrics'
  | 'enqueueMany'
  | 'spawnChildren'
  | 'deleteJob'
  | 'cancelJob'
  | 'pauseJob'
  | 'resumeJob'
  | 'retryJob'
  | 'rewakeParent'
  | 'archiveJob'
  | 'unarchiveJob'
  | 'setAssignee'
  | 'cancelJobs'
  | 'retryJobs'
  | 'archiveJobs'
  | 'deleteJobs'
>
