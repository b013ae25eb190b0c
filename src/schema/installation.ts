import type { JobType as EngineJobType } from '../engine/reads/job-types.ts'
import type { Queue as EngineQueue } from '../engine/reads/queues.ts'
import {
  jobTypeCounts,
  listAssignees,
  listJobTypes,
  listQueues,
  listWorkers,
  queueCounts,
} from '../resolvers/installation.ts'
import { Assignee } from './assignee.ts'
import { builder } from './builder.ts'
import { AssigneeStatus } from './enums.ts'
import { Worker } from './refs.ts'
import { StateCounts } from './state-counts.ts'

const JobType = builder.objectRef<EngineJobType>('JobType').implement({
  description: 'A job type that some live process has defined.',
  fields: (t) => ({
    name: t.exposeString('name', { description: 'Its name.' }),
    payloadSchema: t.field({
      type: 'JSON',
      nullable: true,
      description:
        'JSON Schema of the payload; null where it cannot be told: the process that answers does not know the type, or its schema has no such form.',
      resolve: (type: EngineJobType) => type.payloadSchema,
    }),
    workers: t.exposeInt('workers', { description: 'Live workers that run it.' }),
    counts: t.field({
      type: StateCounts,
      description: 'Its jobs by state. Costs some tenths of a second for a million jobs, whatever is counted.',
      resolve: jobTypeCounts,
    }),
  }),
})

const Queue = builder.objectRef<EngineQueue>('Queue').implement({
  description: 'A queue that has jobs or workers.',
  fields: (t) => ({
    name: t.exposeString('name', { description: 'Its name.' }),
    counts: t.field({
      type: StateCounts,
      description: 'Its jobs by state. Costs as much as JobType.counts, and shares it.',
      resolve: queueCounts,
    }),
    oldestDueAt: t.expose('oldestDueAt', {
      type: 'DateTime',
      nullable: true,
      description: 'runAt of the oldest job that is due and not claimed; null if none.',
    }),
  }),
})

const AssigneeConnection = builder.connectionObject(
  { type: Assignee, name: 'AssigneeConnection', description: 'A page of assignees.' },
  { name: 'AssigneeEdge', description: 'An assignee on a page.', nodeField: { description: 'The assignee.' } },
)

builder.queryFields((t) => ({
  jobTypes: t.field({ type: [JobType], description: 'Types that live processes know.', resolve: listJobTypes }),
  queues: t.field({ type: [Queue], description: 'Queues that have jobs or workers.', resolve: listQueues }),
  assignees: t.field({
    type: AssigneeConnection,
    description: 'Assignees, by id.',
    args: {
      statuses: t.arg({ type: [AssigneeStatus], description: 'Only with these.' }),
      ...t.arg.connectionArgs(),
    },
    resolve: listAssignees,
  }),
  workers: t.field({ type: [Worker], description: 'Workers whose heartbeat lives.', resolve: listWorkers }),
}))
