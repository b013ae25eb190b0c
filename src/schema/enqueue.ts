import { InvalidStateError, ParentGoneError, ValidationError } from '../engine/errors.ts'
import { loadersOf } from '../resolvers/context.ts'
import {
  type EnqueueSuccess,
  enqueueJob,
  enqueueJobs,
  type EnqueueJobInput as JobInput,
  spawnChildren,
} from '../resolvers/enqueue.ts'
import { presentJob } from '../resolvers/present-job.ts'
import { builder } from './builder.ts'
import { ChildFailurePolicy, OrphanPolicy, WaitTimeoutAction } from './enums.ts'
import './errors.ts'
import { Job } from './refs.ts'

const TimeoutsInput = builder.inputType('TimeoutsInput', {
  description: "Time limits; what is absent is the type's own.",
  fields: (t) => ({
    ingest: t.field({ type: 'Duration', description: 'Longest attempt in INGEST, and of a one-phase job.' }),
    aggregate: t.field({ type: 'Duration', description: 'Longest attempt in AGGREGATE.' }),
    wait: t.field({ type: 'Duration', description: 'Longest stay in WAITING, per wave.' }),
    onWaitTimeout: t.field({ type: WaitTimeoutAction, description: 'What happens then; FAIL by default.' }),
  }),
})

const EnqueueJobInput = builder.inputRef<JobInput>('EnqueueJobInput')
EnqueueJobInput.implement({
  description: 'A job, with its children if it has any.',
  fields: (t) => ({
    type: t.string({ required: true, description: 'Which handler runs it.' }),
    payload: t.field({
      type: 'JSON',
      description: 'What it is given; `{}` by default. Checked at once if the type is known here.',
    }),
    queue: t.string({ description: "Which queue; the type's own by default." }),
    priority: t.int({ description: 'Lower first; 0 by default.' }),
    runAt: t.field({ type: 'DateTime', description: 'Not before; at once by default.' }),
    key: t.string({
      description: 'Idempotency key: unique per type among roots, per parent and type among children.',
    }),
    metadata: t.field({ type: 'JSON', description: 'Labels of your own.' }),
    maxRetries: t.int({ description: "Retries in each phase; the type's own, else 2." }),
    assigneeId: t.id({ description: 'Who must be able to act.' }),
    onChildFailure: t.field({
      type: ChildFailurePolicy,
      description: 'For a child: what its failure does to its parent.',
    }),
    failureTolerance: t.field({ type: 'Tolerance', description: 'For a parent: failed children it bears.' }),
    orphanPolicy: t.field({
      type: OrphanPolicy,
      description: 'For a parent: what becomes of its active children when it ends.',
    }),
    timeouts: t.field({ type: TimeoutsInput, description: "Time limits; the type's own by default." }),
    ephemeral: t.boolean({ description: 'For a parent: recovery never wakes it.' }),
    children: t.field({
      type: [EnqueueJobInput],
      description:
        'Its children, to any depth up to 50 and 10,000 jobs in all. Given (even empty), the job starts in WAITING and ' +
        'skips ingest.',
    }),
  }),
})

const EnqueueJobsInput = builder.inputType('EnqueueJobsInput', {
  description: 'Many jobs, all or none.',
  fields: (t) => ({
    jobs: t.field({
      type: [EnqueueJobInput],
      required: true,
      description: 'At most 10,000 in all, children counted.',
    }),
  }),
})

const SpawnChildrenInput = builder.inputType('SpawnChildrenInput', {
  description: 'Children for a parent that waits, or has not finished its ingest.',
  fields: (t) => ({
    parentId: t.id({ required: true, description: 'The parent.' }),
    children: t.field({ type: [EnqueueJobInput], required: true, description: 'All or none.' }),
  }),
})

const EnqueueJobSuccess = builder.objectRef<EnqueueSuccess>('EnqueueJobSuccess').implement({
  description: 'The job is there.',
  fields: (t) => ({
    job: t.field({
      type: Job,
      description: 'New, or the one that has the key.',
      resolve: (success, _args, context, info) => presentJob(success.id, context, info),
    }),
    deduplicated: t.exposeBoolean('deduplicated', {
      description: 'It was there already, and none of the new tree was enqueued.',
    }),
  }),
})

const EnqueueJobsSuccess = builder.objectRef<{ results: EnqueueSuccess[] }>('EnqueueJobsSuccess').implement({
  description: 'The jobs are there.',
  fields: (t) => ({
    results: t.expose('results', { type: [EnqueueJobSuccess], description: 'In the order given.' }),
  }),
})

const SpawnChildrenSuccess = builder
  .objectRef<{ parentId: string; results: EnqueueSuccess[] }>('SpawnChildrenSuccess')
  .implement({
    description: 'The children are there.',
    fields: (t) => ({
      parent: t.field({
        type: Job,
        nullable: true,
        description: 'The parent, which waits for them; null if it was deleted meanwhile.',
        resolve: (success, _args, context, info) => loadersOf(context, info).job.load(success.parentId),
      }),
      results: t.expose('results', { type: [EnqueueJobSuccess], description: 'In the order given.' }),
    }),
  })

builder.mutationFields((t) => ({
  enqueueJob: t.field({
    type: EnqueueJobSuccess,
    description: 'Enqueue a job, or a whole tree of them.',
    errors: { types: [ValidationError], union: { description: 'Answer of enqueueJob.' } },
    args: { input: t.arg({ type: EnqueueJobInput, required: true, description: 'The job.' }) },
    resolve: enqueueJob,
  }),
  enqueueJobs: t.field({
    type: EnqueueJobsSuccess,
    description: 'Enqueue many jobs, all or none.',
    errors: { types: [ValidationError], union: { description: 'Answer of enqueueJobs.' } },
    args: { input: t.arg({ type: EnqueueJobsInput, required: true, description: 'The jobs.' }) },
    resolve: enqueueJobs,
  }),
  spawnChildren: t.field({
    type: SpawnChildrenSuccess,
    description: 'Add children to a parent from outside.',
    errors: {
      types: [ValidationError, ParentGoneError, InvalidStateError],
      union: { description: 'Answer of spawnChildren.' },
    },
    args: { input: t.arg({ type: SpawnChildrenInput, required: true, description: 'Parent and children.' }) },
    resolve: spawnChildren,
  }),
}))
