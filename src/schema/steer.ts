import type { Assignee as EngineAssignee } from '../engine/assignee.ts'
import {
  AlreadyDeliveredError,
  AssigneeNotActiveError,
  ChildrenOpenError,
  InvalidStateError,
  NotFoundError,
  ParentGoneError,
  ValidationError,
} from '../engine/errors.ts'
import type { Job as EngineJob } from '../engine/job.ts'
import type { WakeReceipt as EngineReceipt } from '../engine/reads/receipts.ts'
import {
  archiveJob,
  cancelJob,
  deleteJob,
  pauseJob,
  resumeJob,
  retryJob,
  rewakeParent,
  setAssignee,
  unarchiveJob,
} from '../resolvers/steer.ts'
import { Assignee } from './assignee.ts'
import { builder } from './builder.ts'
import { AssigneeStatus, RetryChildren } from './enums.ts'
import './errors.ts'
import { WakeReceipt } from './job-parts.ts'
import { Job } from './refs.ts'

/** The input of a verb on one job. */
function verbInput(name: string, reason = 'Why, for the audit trail.') {
  return builder.inputType(`${name}Input`, {
    description: `Input of ${name.charAt(0).toLowerCase()}${name.slice(1)}.`,
    fields: (t) => ({
      id: t.id({ required: true, description: 'Which job.' }),
      reason: t.string({ description: reason }),
    }),
  })
}

/** The input of a verb that takes descendants too. */
function subtreeInput(name: string, descendants: string) {
  return builder.inputType(`${name}Input`, {
    description: `Input of ${name.charAt(0).toLowerCase()}${name.slice(1)}.`,
    fields: (t) => ({
      id: t.id({ required: true, description: 'Which job.' }),
      descendants: t.boolean({ required: true, defaultValue: false, description: descendants }),
      reason: t.string({ description: 'Why, for the audit trail.' }),
    }),
  })
}

/** The success of a verb that answers with the job as it is afterwards. */
function jobSuccess(name: string, description: string) {
  return builder.objectRef<{ job: EngineJob }>(`${name}Success`).implement({
    description,
    fields: (t) => ({ job: t.expose('job', { type: Job, description: 'The job.' }) }),
  })
}

const DeleteJobInput = verbInput('DeleteJob')
const CancelJobInput = verbInput('CancelJob', 'Why; becomes cancelReason.')
const PauseJobInput = subtreeInput('PauseJob', 'Its active descendants too.')
const ResumeJobInput = subtreeInput('ResumeJob', 'Its paused descendants too.')
const ArchiveJobInput = verbInput('ArchiveJob')
const UnarchiveJobInput = verbInput('UnarchiveJob')

const RetryJobInput = builder.inputType('RetryJobInput', {
  description: 'Input of retryJob.',
  fields: (t) => ({
    id: t.id({ required: true, description: 'Which job: FAILED or CANCELLED; with `rerun` also COMPLETED.' }),
    descendants: t.boolean({
      required: true,
      defaultValue: false,
      description:
        'Reopen descendants that failed or were cancelled with a parent; it waits for them, then a new wave aggregates.',
    }),
    rerun: t.boolean({ required: true, defaultValue: false, description: 'Run it again although it completed.' }),
    children: t.field({
      type: RetryChildren,
      required: true,
      defaultValue: 'reopen',
      description: 'Its children that were cancelled with it.',
    }),
    reason: t.string({ description: 'Why, for the audit trail.' }),
  }),
})

const RetryJobSuccess = builder
  .objectRef<{ job: EngineJob; reopenedDescendants: number }>('RetryJobSuccess')
  .implement({
    description: 'The job is open again.',
    fields: (t) => ({
      job: t.expose('job', { type: Job, description: 'The job.' }),
      reopenedDescendants: t.exposeInt('reopenedDescendants', { description: 'Descendants opened with it.' }),
    }),
  })

const RewakeParentInput = builder.inputType('RewakeParentInput', {
  description: 'Input of rewakeParent.',
  fields: (t) => ({
    id: t.id({ required: true, description: 'The parent.' }),
    force: t.boolean({
      required: true,
      defaultValue: false,
      description: 'With children open, or again although it FAILED. Needs ADMIN.',
    }),
    reason: t.string({ description: 'Why, for the audit trail.' }),
  }),
})

const RewakeParentSuccess = builder
  .objectRef<{ job: EngineJob; receipt: EngineReceipt }>('RewakeParentSuccess')
  .implement({
    description: 'The parent is woken.',
    fields: (t) => ({
      job: t.expose('job', { type: Job, description: 'The parent.' }),
      receipt: t.expose('receipt', { type: WakeReceipt, description: 'The proof.' }),
    }),
  })

const SetAssigneeInput = builder.inputType('SetAssigneeInput', {
  description: 'Input of setAssignee.',
  fields: (t) => ({
    id: t.id({ required: true, description: 'Made if it does not exist.' }),
    status: t.field({ type: AssigneeStatus, required: true, description: 'Whether it may act.' }),
  }),
})

const DeleteJobSuccess = builder
  .objectRef<{ deletedId: string; cancelledDescendants: number }>('DeleteJobSuccess')
  .implement({
    description: "The job's row is gone.",
    fields: (t) => ({
      deletedId: t.exposeID('deletedId', { description: 'Its id.' }),
      cancelledDescendants: t.exposeInt('cancelledDescendants', {
        description: 'Active descendants that were cancelled.',
      }),
    }),
  })

const CancelJobSuccess = builder
  .objectRef<{ job: EngineJob; cancelledDescendants: number }>('CancelJobSuccess')
  .implement({
    description: 'The job is cancelled.',
    fields: (t) => ({
      job: t.expose('job', { type: Job, description: 'The job.' }),
      cancelledDescendants: t.exposeInt('cancelledDescendants', {
        description: 'Active descendants cancelled with it.',
      }),
    }),
  })

const PauseJobSuccess = jobSuccess('PauseJob', 'The job is paused, or will be when its attempt ends.')
const ResumeJobSuccess = jobSuccess('ResumeJob', 'The job goes on.')
const ArchiveJobSuccess = jobSuccess('ArchiveJob', 'The job is archived.')
const UnarchiveJobSuccess = jobSuccess('UnarchiveJob', 'The job is back.')

const SetAssigneeSuccess = builder
  .objectRef<{ assignee: EngineAssignee; woken: number }>('SetAssigneeSuccess')
  .implement({
    description: 'The assignee is set.',
    fields: (t) => ({
      assignee: t.expose('assignee', { type: Assignee, description: 'The assignee.' }),
      woken: t.exposeInt('woken', { description: 'Parents woken by it.' }),
    }),
  })

/** What a verb on a job may answer besides its success. */
const REFUSALS = [NotFoundError, InvalidStateError]

builder.mutationFields((t) => ({
  deleteJob: t.field({
    type: DeleteJobSuccess,
    description: 'Delete a job and cancel its active descendants.',
    errors: { types: [NotFoundError], union: { description: 'Answer of deleteJob.' } },
    args: { input: t.arg({ type: DeleteJobInput, required: true, description: 'Which.' }) },
    resolve: deleteJob,
  }),
  cancelJob: t.field({
    type: CancelJobSuccess,
    description: 'Cancel a job and its active descendants (unless it KEEPs them).',
    errors: { types: REFUSALS, union: { description: 'Answer of cancelJob.' } },
    args: { input: t.arg({ type: CancelJobInput, required: true, description: 'Which.' }) },
    resolve: cancelJob,
  }),
  pauseJob: t.field({
    type: PauseJobSuccess,
    description: 'Set a job aside.',
    errors: { types: REFUSALS, union: { description: 'Answer of pauseJob.' } },
    args: { input: t.arg({ type: PauseJobInput, required: true, description: 'Which.' }) },
    resolve: pauseJob,
  }),
  resumeJob: t.field({
    type: ResumeJobSuccess,
    description: 'Let a paused job go on.',
    errors: { types: REFUSALS, union: { description: 'Answer of resumeJob.' } },
    args: { input: t.arg({ type: ResumeJobInput, required: true, description: 'Which.' }) },
    resolve: resumeJob,
  }),
  retryJob: t.field({
    type: RetryJobSuccess,
    description: 'Run a failed or cancelled job again, in the phase it failed in.',
    errors: { types: [...REFUSALS, ParentGoneError, ValidationError], union: { description: 'Answer of retryJob.' } },
    args: { input: t.arg({ type: RetryJobInput, required: true, description: 'Which.' }) },
    resolve: retryJob,
  }),
  rewakeParent: t.field({
    type: RewakeParentSuccess,
    description: 'Wake a parent now. Refused while children are open, unless forced.',
    errors: {
      types: [...REFUSALS, ChildrenOpenError, AlreadyDeliveredError, AssigneeNotActiveError],
      union: { description: 'Answer of rewakeParent.' },
    },
    args: { input: t.arg({ type: RewakeParentInput, required: true, description: 'Which.' }) },
    resolve: rewakeParent,
  }),
  archiveJob: t.field({
    type: ArchiveJobSuccess,
    description: "Take a job out of lists and out of its parent's child set.",
    errors: { types: REFUSALS, union: { description: 'Answer of archiveJob.' } },
    args: { input: t.arg({ type: ArchiveJobInput, required: true, description: 'Which.' }) },
    resolve: archiveJob,
  }),
  unarchiveJob: t.field({
    type: UnarchiveJobSuccess,
    description: 'Put an archived job back.',
    errors: { types: REFUSALS, union: { description: 'Answer of unarchiveJob.' } },
    args: { input: t.arg({ type: UnarchiveJobInput, required: true, description: 'Which.' }) },
    resolve: unarchiveJob,
  }),
  setAssignee: t.field({
    type: SetAssigneeSuccess,
    description: 'Make an assignee, or change whether it may act.',
    errors: { types: [ValidationError], union: { description: 'Answer of setAssignee.' } },
    args: { input: t.arg({ type: SetAssigneeInput, required: true, description: 'Whom.' }) },
    resolve: setAssignee,
  }),
}))
