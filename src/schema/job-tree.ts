import { type JobTree as Tree, treeCounts, treeCursor, treeNodes, treeRoot } from '../resolvers/job-tree.ts'
import { builder } from './builder.ts'
import { JobState } from './enums.ts'
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
