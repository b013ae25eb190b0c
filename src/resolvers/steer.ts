import type { GraphQLResolveInfo } from 'graphql'
import type { Assignee, AssigneeStatus } from '../engine/assignee.ts'
import type { SteerOptions } from '../engine/engine.ts'
import { NotFoundError } from '../engine/errors.ts'
import type { Job } from '../engine/job.ts'
import type { WakeReceipt } from '../engine/reads/receipts.ts'
import type { ApiEngine } from './api-engine.ts'
import { authorise, type Context, loadersOf } from './context.ts'
import { assigneeIdArg, jobGlobalId, jobIdArg } from './global-ids.ts'
import type { Role } from './viewer.ts'

type Info = GraphQLResolveInfo

/** Input of every verb on one job. */
export interface VerbInput {
  id: string
  reason?: string | null | undefined
}

/** Input of a verb that takes descendants too. */
export interface SubtreeInput extends VerbInput {
  descendants: boolean
}

/** Input of retryJob. */
export interface RetryInput extends SubtreeInput {
  rerun: boolean
  children: 'reopen' | 'none'
}

/** Input of rewakeParent. */
export interface RewakeInput extends VerbInput {
  force: boolean
}

/** A verb on one job as a resolver: authorise, call, forget what was read before. */
function verb<Result, Input extends VerbInput = VerbInput>(
  role: Role | ((input: Input) => Role),
  call: (engine: ApiEngine, id: string, options: SteerOptions, input: Input) => Promise<Result>,
) {
  return async (_root: unknown, { input }: { input: Input }, context: Context, info: Info): Promise<Result> => {
    authorise(context, typeof role === 'function' ? role(input) : role)
    const options = { actor: context.viewer.name, ...(input.reason != null && { reason: input.reason }) }
    const result = await call(context.engine, jobIdArg(input.id), options, input).catch((error: unknown) => {
      // Answered with the id as it was given.
      throw error instanceof NotFoundError ? new NotFoundError(input.id) : error
    })
    loadersOf(context, info).clear()
    return result
  }
}

/** Deletes a job and cancels its active descendants. */
export const deleteJob = verb(
  'admin',
  async (engine, id, options): Promise<{ deletedId: string; cancelledDescendants: number }> => {
    const { cancelledDescendants } = await engine.deleteJob(id, options)
    return { deletedId: jobGlobalId(id), cancelledDescendants }
  },
)

/** Cancels a job and its active descendants. */
export const cancelJob = verb<{ job: Job; cancelledDescendants: number }>('operator', (engine, id, options) =>
  engine.cancelJob(id, options),
)

/** Sets a job aside. */
export const pauseJob = verb<{ job: Job }, SubtreeInput>('operator', (engine, id, options, { descendants }) =>
  engine.pauseJob(id, { ...options, descendants }),
)

/** Lets a paused job go on. */
export const resumeJob = verb<{ job: Job }, SubtreeInput>('operator', (engine, id, options, { descendants }) =>
  engine.resumeJob(id, { ...options, descendants }),
)

/** Runs a failed or cancelled job again. */
export const retryJob = verb<{ job: Job; reopenedDescendants: number }, RetryInput>(
  'operator',
  (engine, id, options, { descendants, rerun, children }) =>
    engine.retryJob(id, { ...options, descendants, rerun, children }),
)

/** Wakes a parent by hand; only who may delete may force it. */
export const rewakeParent = verb<{ job: Job; receipt: WakeReceipt }, RewakeInput>(
  ({ force }) => (force ? 'admin' : 'operator'),
  (engine, id, options, { force }) => engine.rewakeParent(id, { ...options, force }),
)

/** Takes a job out of lists and out of its parent's child set. */
export const archiveJob = verb<{ job: Job }>('operator', (engine, id, options) => engine.archiveJob(id, options))

/** Puts an archived job back. */
export const unarchiveJob = verb<{ job: Job }>('operator', (engine, id, options) => engine.unarchiveJob(id, options))

/** Makes an assignee, or changes whether it may act. */
export async function setAssignee(
  _root: unknown,
  { input }: { input: { id: string; status: AssigneeStatus } },
  context: Context,
  info: Info,
): Promise<{ assignee: Assignee; woken: number }> {
  authorise(context, 'admin')
  const { assignee, woken } = await context.engine.setAssignee(assigneeIdArg(input.id), input.status, {
    actor: context.viewer.name,
  })
  loadersOf(context, info).clear()
  return { assignee, woken: woken.length }
}
