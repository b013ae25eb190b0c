import { brandWithType } from '@pothos/core'
import { findTree } from '../resolvers/job-tree.ts'
import {
  type FoundNode,
  findJob,
  findNode,
  findNodes,
  listJobs,
  listOrphans,
  listStuckParents,
  pullEvents,
} from '../resolvers/query.ts'
import { readStats } from '../resolvers/stats.ts'
import type { Viewer as Caller } from '../resolvers/viewer.ts'
import { Assignee } from './assignee.ts'
import { builder } from './builder.ts'
import { Role } from './enums.ts'
import { JobEventFilter, JobFilter, JobOrder } from './filters.ts'
import { JobEventBatch } from './job-event.ts'
import { JobTree } from './job-tree.ts'
import { Job, JobConnection, JobEvent, Worker } from './refs.ts'
import { Stats } from './stats.ts'

const NODE_TYPES = { Job, JobEvent, Assignee, Worker }

/** A node marked with its type, by which the interface finds it. */
function branded(found: FoundNode | null): FoundNode['value'] | null {
  if (found) brandWithType(found.value, NODE_TYPES[found.type])
  return found?.value ?? null
}

const Viewer = builder.objectRef<Caller>('Viewer').implement({
  description: 'Who asks.',
  fields: (t) => ({
    name: t.exposeString('name', {
      description: 'Name of the key or subject of the token; `anonymous` without auth.',
    }),
    role: t.expose('role', { type: Role, description: 'What they may do.' }),
  }),
})

builder.queryType({
  description: 'Reading.',
  fields: (t) => ({
    node: t.field({
      type: builder.nodeInterfaceRef(),
      nullable: true,
      description: 'Anything by its id; null if there is no such thing.',
      args: { id: t.arg.id({ required: true, description: 'Global id.' }) },
      resolve: async (_root, args, context, info) => branded(await findNode(args.id, context, info)),
    }),
    nodes: t.field({
      type: [builder.nodeInterfaceRef()],
      nullable: { list: false, items: true },
      description: 'Things by their ids, in that order, null where there is none.',
      args: { ids: t.arg.idList({ required: true, description: '1-100 global ids.' }) },
      resolve: async (_root, args, context, info) => (await findNodes(args.ids, context, info)).map(branded),
    }),
    job: t.field({
      type: Job,
      nullable: true,
      description: 'A job; null if there is none.',
      args: { id: t.arg.id({ required: true, description: '`JB_…` or a UUID.' }) },
      resolve: findJob,
    }),
    jobs: t.field({
      type: JobConnection,
      description: 'Jobs, newest first.',
      args: {
        filter: t.arg({ type: JobFilter, description: 'Which.' }),
        orderBy: t.arg({ type: JobOrder, description: 'In which order.' }),
        ...t.arg.connectionArgs(),
      },
      resolve: listJobs,
    }),
    jobTree: t.field({
      type: JobTree,
      nullable: true,
      description: 'The tree that a job belongs to; null if there is no trace of it.',
      args: {
        id: t.arg.id({ required: true, description: "Any job of the tree; the root's also after it was deleted." }),
      },
      resolve: findTree,
    }),
    stuckParents: t.field({
      type: JobConnection,
      description:
        'Parents that the reconciler would wake now, or withholds: its dry run. `explain` tells which and why.',
      args: t.arg.connectionArgs(),
      resolve: listStuckParents,
    }),
    orphans: t.field({
      type: JobConnection,
      description: 'Jobs that the orphan sweep would cancel now: its dry run.',
      args: t.arg.connectionArgs(),
      resolve: listOrphans,
    }),
    events: t.field({
      type: JobEventBatch,
      description: 'The event log, oldest first: the same stream as jobEvents, to be pulled.',
      args: {
        filter: t.arg({ type: JobEventFilter, description: 'Which.' }),
        after: t.arg.string({ description: 'Feed cursor; from the oldest kept event if absent.' }),
        first: t.arg.int({ required: true, defaultValue: 20, description: 'At most this many, 1-100.' }),
      },
      resolve: pullEvents,
    }),
    stats: t.field({ type: Stats, description: 'The installation in numbers.', resolve: readStats }),
    viewer: t.field({
      type: Viewer,
      description: 'Who asks, and what they may do.',
      resolve: (_root, _args, context) => context.viewer,
    }),
  }),
})
