import type { Job as EngineJob } from '../engine/job.ts'
import { assigneeGlobalId, jobGlobalId } from '../resolvers/global-ids.ts'
import {
  errorStack,
  jobAssignee,
  jobAttempts,
  jobChildCounts,
  jobChildren,
  jobEvents,
  jobExplain,
  jobParent,
  jobReceipt,
  jobRoot,
  jobWorker,
} from '../resolvers/job-fields.ts'
import { Assignee } from './assignee.ts'
import { builder } from './builder.ts'
import { CancelCode, ChildFailurePolicy, FailureCode, JobState, OrphanPolicy, Phase } from './enums.ts'
import { Explanation } from './explanation.ts'
import { JobFilter, JobOrder } from './filters.ts'
import { Attempt, Progress, Timeouts, WakeReceipt } from './job-parts.ts'
import { Job, JobConnection, JobEventConnection, Worker } from './refs.ts'
import { StateCounts } from './state-counts.ts'

Job.implement({
  description: 'One job: a node of a tree.',
  interfaces: [builder.nodeInterfaceRef()],
  fields: (t) => ({
    id: t.id({ description: '`JB_` and the stored UUID.', resolve: (job) => jobGlobalId(job.id) }),
    treeId: t.id({
      description: "Id of the tree's root; its own for a root.",
      resolve: (job) => jobGlobalId(job.treeId),
    }),
    parentId: t.id({
      nullable: true,
      description: 'Id of the parent, also after the parent was deleted; null for a root.',
      resolve: (job) => jobGlobalId(job.parentId),
    }),
    parentWave: t.exposeInt('parentWave', {
      nullable: true,
      description: "The parent's wave that this child belongs to (1, 2, …); null for a root.",
    }),
    depth: t.exposeInt('depth', { description: 'Distance from the root.' }),
    type: t.exposeString('type', { description: 'Which handler runs it.' }),
    queue: t.exposeString('queue', { description: 'Which queue it is claimed from.' }),
    priority: t.exposeInt('priority', { description: 'Lower first.' }),
    runAt: t.expose('runAt', { type: 'DateTime', description: 'Not claimed before this instant.' }),
    key: t.exposeString('key', { nullable: true, description: 'Idempotency key, or null.' }),
    payload: t.field({
      type: 'JSON',
      description: 'What it was given.',
      resolve: (job: EngineJob) => job.payload ?? {},
    }),
    result: t.field({
      type: 'JSON',
      nullable: true,
      description: 'What it returned; null until COMPLETED, or when it returned nothing.',
      resolve: (job: EngineJob) => job.result,
    }),
    metadata: t.field({
      type: 'JSON',
      description: "Labels of the user's own, searchable.",
      resolve: (job: EngineJob) => job.metadata ?? {},
    }),
    state: t.expose('state', { type: JobState, description: 'Where it is in its life.' }),
    phase: t.expose('phase', { type: Phase, description: 'Which phase it runs next, or ran last.' }),
    wave: t.exposeInt('wave', { description: 'How many child sets it has been woken for.' }),
    attempt: t.exposeInt('attempt', { description: 'Claims over its whole life, for people.' }),
    retryCount: t.exposeInt('retryCount', { description: 'Retries in the present phase.' }),
    maxRetries: t.exposeInt('maxRetries', { description: 'Retries allowed in each phase.' }),
    completionEpoch: t.exposeInt('completionEpoch', { description: 'Grows each time it becomes terminal.' }),
    version: t.exposeInt('version', {
      description: 'Grows with every event of this job: keep whichever of two copies has the higher one.',
    }),
    childCount: t.exposeInt('childCount', { description: 'Children not archived, of all waves.' }),
    openChildren: t.exposeInt('openChildren', { description: 'Of those, how many are not terminal.' }),
    childCounts: t.field({
      type: StateCounts,
      description: 'Children by state, of all waves.',
      resolve: jobChildCounts,
    }),
    progress: t.expose('progress', {
      type: Progress,
      nullable: true,
      description: 'How far it says it is; null if it never said.',
    }),
    assigneeId: t.id({
      nullable: true,
      description: 'Who must be able to act, or null.',
      resolve: (job) => assigneeGlobalId(job.assigneeId),
    }),
    assignee: t.field({
      type: Assignee,
      nullable: true,
      description: 'The assignee; null if none is set or it is unresolved.',
      resolve: jobAssignee,
    }),
    worker: t.field({
      type: Worker,
      nullable: true,
      description: 'Who runs it; null unless RUNNING.',
      resolve: jobWorker,
    }),
    ephemeral: t.exposeBoolean('ephemeral', { description: 'A parent that recovery never wakes.' }),
    archivedAt: t.expose('archivedAt', {
      type: 'DateTime',
      nullable: true,
      description: 'When it was archived; null otherwise.',
    }),
    onChildFailure: t.expose('onChildFailure', {
      type: ChildFailurePolicy,
      description: 'What its failure does to its parent.',
    }),
    failureTolerance: t.expose('failureTolerance', {
      type: 'Tolerance',
      nullable: true,
      description: 'Failed children it bears; null is any number.',
    }),
    orphanPolicy: t.expose('orphanPolicy', {
      type: OrphanPolicy,
      description: 'What becomes of its active children when it ends.',
    }),
    timeouts: t.expose('timeouts', { type: Timeouts, description: 'Its time limits.' }),
    error: t.exposeString('error', {
      nullable: true,
      description: "Last error's message, kept after a later success; null if none.",
    }),
    errorCode: t.expose('errorCode', {
      type: FailureCode,
      nullable: true,
      description: "Last error's kind; null if none.",
    }),
    errorStack: t.string({
      nullable: true,
      description: "Last error's stack; null if none, or below OPERATOR.",
      resolve: errorStack,
    }),
    cancelReason: t.exposeString('cancelReason', { nullable: true, description: 'In words; null unless CANCELLED.' }),
    cancelCode: t.expose('cancelCode', {
      type: CancelCode,
      nullable: true,
      description: 'Null unless CANCELLED.',
    }),
    createdAt: t.expose('createdAt', { type: 'DateTime', description: 'When it was enqueued.' }),
    updatedAt: t.expose('updatedAt', { type: 'DateTime', description: 'When it last changed.' }),
    startedAt: t.expose('startedAt', {
      type: 'DateTime',
      nullable: true,
      description: 'When it was first claimed; null before.',
    }),
    finishedAt: t.expose('finishedAt', {
      type: 'DateTime',
      nullable: true,
      description: 'When it became terminal; null while it is not.',
    }),
    parent: t.field({
      type: Job,
      nullable: true,
      description: 'The parent; null for a root or after the parent was deleted.',
      resolve: jobParent,
    }),
    root: t.field({
      type: Job,
      nullable: true,
      description: 'The root; null if it was deleted.',
      resolve: jobRoot,
    }),
    children: t.field({
      type: JobConnection,
      description: 'Its children.',
      args: {
        filter: t.arg({ type: JobFilter, description: 'Which; archived ones only on demand.' }),
        orderBy: t.arg({ type: JobOrder, description: 'Oldest first by default.' }),
        ...t.arg.connectionArgs(),
      },
      resolve: jobChildren,
    }),
    events: t.field({
      type: JobEventConnection,
      description: 'Its audit trail, oldest first.',
      args: t.arg.connectionArgs(),
      resolve: jobEvents,
    }),
    attempts: t.field({
      type: [Attempt],
      description: 'Its attempts, newest first, from its events.',
      args: {
        first: t.arg.int({ required: true, defaultValue: 20, description: 'At most this many, 1-100.' }),
      },
      resolve: jobAttempts,
    }),
    receipt: t.field({
      type: WakeReceipt,
      nullable: true,
      description: 'The last wake it was given; null before the first.',
      resolve: jobReceipt,
    }),
    explain: t.field({
      type: [Explanation],
      description:
        "Why it is not moving, the decisive reason first; never empty. A waiting parent's list goes down to the leaves that hold it up.",
      resolve: jobExplain,
    }),
  }),
})
