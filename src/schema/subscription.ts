import { watchStats } from '../resolvers/stats.ts'
import { watchEvents, watchJob } from '../resolvers/subscriptions.ts'
import { watchTree } from '../resolvers/tree-updates.ts'
import { builder } from './builder.ts'
import { JobEventFilter } from './filters.ts'
import { JobEventBatch } from './job-event.ts'
import { JobTreeUpdate } from './job-tree.ts'
import { Job } from './refs.ts'
import { Stats } from './stats.ts'

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
    jobTree: t.field({
      type: JobTreeUpdate,
      description:
        'A tree: what is, in one snapshot (in parts if large), then what changes. Resumable; an expired cursor brings a ' +
        'new snapshot. Of a tree of more than 10,000 jobs each further 10,000 are a little newer than the first ones; ' +
        'what changed meanwhile follows.',
      args: {
        id: t.arg.id({ required: true, description: 'Any job of the tree.' }),
        after: t.arg.string({ description: 'Feed cursor to go on from; a snapshot if absent.' }),
      },
      subscribe: watchTree,
      resolve: (update) => update,
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
    stats: t.field({
      type: Stats,
      description: 'The installation in numbers, again and again.',
      args: {
        interval: t.arg({
          type: 'Duration',
          required: true,
          defaultValue: 1000,
          description: 'How often; 500ms at least.',
        }),
      },
      subscribe: watchStats,
      resolve: (stats) => stats,
    }),
  }),
})
