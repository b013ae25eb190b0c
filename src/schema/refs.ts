import type { JobEvent as EngineJobEvent } from '../engine/feed/event.ts'
import type { Job as EngineJob } from '../engine/job.ts'
import type { Worker as EngineWorker } from '../engine/reads/workers.ts'
import { builder } from './builder.ts'

// Types that refer to one another; their fields are in job.ts, job-event.ts and worker.ts.

export const Job = builder.objectRef<EngineJob>('Job')

export const JobEvent = builder.objectRef<EngineJobEvent>('JobEvent')

export const Worker = builder.objectRef<EngineWorker>('Worker')

export const JobConnection = builder.connectionObject(
  { type: Job, name: 'JobConnection', description: 'A page of jobs.' },
  { name: 'JobEdge', description: 'A job on a page.', nodeField: { description: 'The job.' } },
)

export const JobEventConnection = builder.connectionObject(
  { type: JobEvent, name: 'JobEventConnection', description: 'A page of events.' },
  { name: 'JobEventEdge', description: 'An event on a page.', nodeField: { description: 'The event.' } },
)
