import { watchEvents, watchJob } from '../resolvers/subscriptions.ts'
import { builder } from './builder.ts'
import { JobEventFilter } from './filters.ts'
import { JobEventBatch } from './job-event.ts'
import { Job } from './refs.ts'

builder.subscriptionType({
  description: 'Living. The first frame comes at once and proves that the subscription works.',
  fields: (t) => ({
    jobEvents: t.field({
      type: JobEventBatch,
      description: 'Every event that matches, once, in order per job. Resumable.',
      // A frame of 100 events.
      complexity: { field: 1, multiplier: 100 },
      args: {
        filter: t.arg({ type: JobEventFilter, description: 'Which.' }),
        after: t.arg.string({ description: 'Feed cursor to go on from; from now on if absent.' }),
      },
      subscribe: watchEvents,
      resolve: (batch) => batch,
    }),
    job: t.field({
      type: Job,
      nullable: true,
      description:
        'A job: as it is, then after each change (coalesced to 4 a second, the last one always). Null once it is deleted.',
      args: {
        id: t.arg.id({ required: true, description: '`JB_…` or a UUID.' }),
        keepOpen: t.arg.boolean({
          required: true,
          defaultValue: false,
          description: 'Stay open when the job is terminal.',
        }),
      },
      subscribe: watchJob,
      resolve: (job) => job,
    }),
  }),
})
