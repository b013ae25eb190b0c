import type { FeedBatch } from '../engine/feed/batch.ts'
import { formatId } from '../engine/ids.ts'
import { loadersOf } from '../resolvers/context.ts'
import { eventDetail } from '../resolvers/event-detail.ts'
import { jobGlobalId } from '../resolvers/global-ids.ts'
import { builder } from './builder.ts'
import { EndReason, JobEventKind, JobState, Phase } from './enums.ts'
import { Job, JobEvent } from './refs.ts'

JobEvent.implement({
  description: 'One row of the event log: what happened to a job, when, by whom.',
  interfaces: [builder.nodeInterfaceRef()],
  fields: (t) => ({
    id: t.id({
      description: '`EV_` and a number; grows per job, not across jobs.',
      resolve: (event) => formatId('EV', event.id),
    }),
    kind: t.expose('kind', { type: JobEventKind, description: 'What it tells.' }),
    job: t.field({
      type: Job,
      nullable: true,
      description: 'The job as it is when this is read: never older than the event; null if deleted since.',
      resolve: (event, _args, context, info) => loadersOf(context, info).job.load(event.jobId),
    }),
    jobId: t.id({ description: 'Whose event.', resolve: (event) => jobGlobalId(event.jobId) }),
    treeId: t.id({ description: 'Of which tree.', resolve: (event) => jobGlobalId(event.treeId) }),
    parentId: t.id({
      nullable: true,
      description: 'Of which parent; null for a root.',
      resolve: (event) => jobGlobalId(event.parentId),
    }),
    type: t.exposeString('type', { description: "The job's type." }),
    from: t.expose('from', { type: JobState, nullable: true, description: 'State before; null for CREATED.' }),
    to: t.expose('to', { type: JobState, nullable: true, description: 'State after; null for DELETED.' }),
    phase: t.expose('phase', { type: Phase, description: 'Phase after.' }),
    wave: t.exposeInt('wave', { description: 'Wave after.' }),
    attempt: t.exposeInt('attempt', { description: 'Attempt at the time.' }),
    version: t.exposeInt('version', { description: "The job's version after it." }),
    at: t.expose('at', { type: 'DateTime', description: 'When, by the database clock.' }),
    actor: t.exposeString('actor', { description: 'Worker, key, user, `reconciler` or `sql`.' }),
    reason: t.exposeString('reason', {
      nullable: true,
      description: 'Why, in words; null if the move says it all.',
    }),
    detail: t.field({
      type: 'JSON',
      nullable: true,
      description: 'More: error, backoff, receipt, progress; null if nothing.',
      resolve: (event, _args, context) => eventDetail(event, context),
    }),
  }),
})

export const JobEventBatch = builder.objectRef<FeedBatch>('JobEventBatch').implement({
  description: 'Some events, in order.',
  fields: (t) => ({
    events: t.expose('events', {
      type: [JobEvent],
      description: 'At most 100; empty in the first frame, in a beat (every 30 s when quiet) and often in the last.',
    }),
    cursor: t.exposeString('cursor', {
      description: 'Where to go on after these, also in the middle of a catch-up.',
    }),
    caughtUp: t.exposeBoolean('caughtUp', { description: 'Nothing more was known when this was sent.' }),
    ended: t.expose('ended', { type: EndReason, nullable: true, description: 'Set in the last frame only.' }),
  }),
})
