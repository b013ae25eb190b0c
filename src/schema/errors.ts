import {
  AlreadyDeliveredError,
  AssigneeNotActiveError,
  ChildrenOpenError,
  InvalidStateError,
  type InputIssue as Issue,
  NotFoundError,
  ParentGoneError,
  ValidationError,
} from '../engine/errors.ts'
import { loadersOf } from '../resolvers/context.ts'
import { presentJob, presentJobs } from '../resolvers/present-job.ts'
import { Assignee } from './assignee.ts'
import { builder } from './builder.ts'
import { ErrorCode, type ErrorCodeName } from './enums.ts'
import { WakeReceipt } from './job-parts.ts'
import { Job } from './refs.ts'

/** What every typed error has. */
interface TypedError {
  message: string
  code: ErrorCodeName
}

const ErrorInterface = builder.interfaceRef<TypedError>('Error').implement({
  description: 'What every typed error of a mutation has.',
  fields: (t) => ({
    message: t.exposeString('message', { description: 'For people.' }),
    code: t.expose('code', { type: ErrorCode, description: 'For programs.' }),
  }),
})

const InputIssue = builder.objectRef<Issue>('InputIssue').implement({
  description: 'One thing wrong with the input.',
  fields: (t) => ({
    path: t.exposeStringList('path', {
      description: 'Where, from the input down: `["children", "3", "payload", "path"]`.',
    }),
    message: t.exposeString('message', { description: 'What.' }),
  }),
})

builder.objectType(ValidationError, {
  name: 'ValidationError',
  description: 'Something in the input is wrong; nothing was done.',
  interfaces: [ErrorInterface],
  fields: (t) => ({
    code: t.expose('code', { type: ErrorCode, description: 'VALIDATION.' }),
    issues: t.expose('issues', { type: [InputIssue], description: 'Each thing that is wrong.' }),
  }),
})

builder.objectType(NotFoundError, {
  name: 'NotFoundError',
  description: 'There is no such thing.',
  interfaces: [ErrorInterface],
  fields: (t) => ({
    code: t.expose('code', { type: ErrorCode, description: 'NOT_FOUND.' }),
    id: t.exposeID('id', { description: 'The id as given.' }),
  }),
})

builder.objectType(InvalidStateError, {
  name: 'InvalidStateError',
  description: "The job's state does not allow this, or no longer does.",
  interfaces: [ErrorInterface],
  fields: (t) => ({
    code: t.expose('code', { type: ErrorCode, description: 'INVALID_STATE.' }),
    job: t.field({
      type: Job,
      description: 'The job as it is.',
      resolve: (error, _args, context, info) => presentJob(error.jobId, context, info),
    }),
  }),
})

builder.objectType(ParentGoneError, {
  name: 'ParentGoneError',
  description: 'No children can be added: the parent is deleted or terminal.',
  interfaces: [ErrorInterface],
  fields: (t) => ({
    code: t.expose('code', { type: ErrorCode, description: 'PARENT_GONE.' }),
    parent: t.field({
      type: Job,
      nullable: true,
      description: 'The parent; null if deleted.',
      resolve: (error, _args, context, info) => loadersOf(context, info).job.load(error.parentId),
    }),
  }),
})

builder.objectType(ChildrenOpenError, {
  name: 'ChildrenOpenError',
  description: 'Children of the parent are not terminal; `force` wakes it with what there is.',
  interfaces: [ErrorInterface],
  fields: (t) => ({
    code: t.expose('code', { type: ErrorCode, description: 'CHILDREN_OPEN.' }),
    parent: t.field({
      type: Job,
      description: 'The parent.',
      resolve: (error, _args, context, info) => presentJob(error.parentId, context, info),
    }),
    openChildren: t.exposeInt('openChildren', { description: 'How many are open.' }),
    children: t.field({
      type: [Job],
      description: 'The first 20 of them.',
      resolve: (error, _args, context, info) => presentJobs(error.childIds, context, info),
    }),
  }),
})

builder.objectType(AlreadyDeliveredError, {
  name: 'AlreadyDeliveredError',
  description: 'The parent was woken and is on its way to aggregate, or at it; `force` does not help.',
  interfaces: [ErrorInterface],
  fields: (t) => ({
    code: t.expose('code', { type: ErrorCode, description: 'ALREADY_DELIVERED.' }),
    receipt: t.expose('receipt', { type: WakeReceipt, description: 'The proof.' }),
  }),
})

builder.objectType(AssigneeNotActiveError, {
  name: 'AssigneeNotActiveError',
  description: "The parent's assignee is not ACTIVE, or unknown; `force` does not help.",
  interfaces: [ErrorInterface],
  fields: (t) => ({
    code: t.expose('code', { type: ErrorCode, description: 'ASSIGNEE_NOT_ACTIVE.' }),
    assignee: t.field({
      type: Assignee,
      nullable: true,
      description: 'The assignee; null if unknown.',
      resolve: (error, _args, context, info) => loadersOf(context, info).assignee.load(error.assigneeId),
    }),
  }),
})
