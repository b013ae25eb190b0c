import type { TreeUpdate } from '../engine/watch/tree-update.ts'
import { type JobTree as Tree, treeCounts, treeCursor, treeNodes, treeRoot } from '../resolvers/job-tree.ts'
import { removedIds, updatedJobs } from '../resolvers/tree-updates.ts'
import { builder } from './builder.ts'
import { EndReason, JobState } from './enums.ts'
import { Job, JobConnection } from './refs.ts'
import { StateCounts } from './state-counts.ts'

export const JobTree = builder.objectRef<Tree>('JobTree').implement({
  description: 'A tree, flat. All of it comes from one snapshot.',
  fields: (t) => ({
    root: t.field({
      type: Job,
      nullable: true,
      description: 'The root; null if it was deleted.',
      resolve: treeRoot,
    }),
    counts: t.field({
      type: StateCounts,
      description: 'The whole tree by state, whatever `nodes` asks for.',
      resolve: treeCounts,
    }),
    cursor: t.string({
      description:
        'Feed cursor of the snapshot that this was read in: jobEvents or jobTree go on from here without a gap.',
      resolve: treeCursor,
    }),
    nodes: t.field({
      type: JobConnection,
      description: 'Its jobs by depth, then id: a parent before its children. On later pages merge by version.',
      args: {
        first: t.arg.int({ required: true, defaultValue: 1000, description: 'Page size, 1-10000.' }),
        after: t.arg.string({ description: 'Behind this cursor.' }),
        states: t.arg({ type: [JobState], description: 'Only these states.' }),
        maxDepth: t.arg.int({ description: 'At most this far from the root.' }),
      },
      resolve: treeNodes,
    }),
  }),
})

export const JobTreeUpdate = builder.objectRef<TreeUpdate>('JobTreeUpdate').implement({
  description: 'What a client of a tree applies: drop all if `reset`, put `jobs` by id, take `removed` away.',
  fields: (t) => ({
    reset: t.exposeBoolean('reset', { description: 'A fresh snapshot begins: forget what you have.' }),
    jobs: t.field({
      type: [Job],
      description:
        'New or changed jobs as they are now, by depth, then id: a parent before its children; at most 1000 a frame. ' +
        'Of two copies of a job the one with the higher version counts.',
      complexity: { field: 1, multiplier: 1000 },
      resolve: updatedJobs,
    }),
    removed: t.idList({
      description: 'Ids of jobs that were deleted or archived; also of some that were never told of.',
      resolve: removedIds,
    }),
    counts: t.expose('counts', {
      type: StateCounts,
      description: 'The whole tree by state. While `caughtUp` is false it may be a second old.',
    }),
    cursor: t.exposeString('cursor', {
      description:
        'Where to go on after this frame. In the middle of a snapshot of several frames only jobTree takes it, else ' +
        'jobEvents and events do too.',
    }),
    caughtUp: t.exposeBoolean('caughtUp', {
      description: 'Nothing more was known when this was sent; the snapshot is complete.',
    }),
    ended: t.expose('ended', {
      type: EndReason,
      nullable: true,
      description: 'Set in the last frame only. Never CURSOR_EXPIRED: then a new snapshot begins by itself.',
    }),
  }),
})
