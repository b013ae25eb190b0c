import type { GraphQLResolveInfo } from 'graphql'
import { type InputIssue, NotFoundError, ParentGoneError, ValidationError } from '../engine/errors.ts'
import type { ChildFailurePolicy, Json, NewJob, OrphanPolicy } from '../engine/job.ts'
import { authorise, type Context, loadersOf } from './context.ts'
import { assigneeIdArg, jobIdArg } from './global-ids.ts'

type Info = GraphQLResolveInfo

/** A job to be enqueued, as GraphQL gives it: null is absent. */
export interface EnqueueJobInput {
  type: string
  payload?: unknown
  queue?: string | null | undefined
  priority?: number | null | undefined
  runAt?: Date | null | undefined
  key?: string | null | undefined
  metadata?: unknown
  maxRetries?: number | null | undefined
  assigneeId?: string | null | undefined
  onChildFailure?: ChildFailurePolicy | null | undefined
  failureTolerance?: number | string | null | undefined
  orphanPolicy?: OrphanPolicy | null | undefined
  timeouts?: TimeoutsInput | null | undefined
  ephemeral?: boolean | null | undefined
  children?: EnqueueJobInput[] | null | undefined
}

/** Time limits in milliseconds: null is absent. */
export interface TimeoutsInput {
  ingest?: number | null | undefined
  aggregate?: number | null | undefined
  wait?: number | null | undefined
  onWaitTimeout?: 'fail' | 'aggregate' | null | undefined
}

/** What enqueueing one job came to; its job is read when it is asked for. */
export interface EnqueueSuccess {
  id: string
  deduplicated: boolean
}

/** Most jobs of one call, children counted. */
const MAX_JOBS = 10_000

/** Enqueues a job, or a whole tree of them. */
export async function enqueueJob(
  _root: unknown,
  { input }: { input: EnqueueJobInput },
  context: Context,
  info: Info,
): Promise<EnqueueSuccess> {
  const [result] = await enqueue([input], context, info, ([_position, ...path]) => path)
  return result!
}

/** Enqueues many jobs, all or none. */
export async function enqueueJobs(
  _root: unknown,
  { input }: { input: { jobs: EnqueueJobInput[] } },
  context: Context,
  info: Info,
): Promise<{ results: EnqueueSuccess[] }> {
  return { results: await enqueue(input.jobs, context, info, (path) => ['jobs', ...path]) }
}

async function enqueue(
  jobs: EnqueueJobInput[],
  context: Context,
  info: Info,
  place: (path: string[]) => string[],
): Promise<EnqueueSuccess[]> {
  authorise(context, 'operator')
  return replacingPaths(place, async () => {
    const given = newJobs(jobs)
    const results = await context.engine.enqueueMany(given, { actor: context.viewer.name })
    loadersOf(context, info).clear()
    return results
  })
}

/** Adds children to a parent from outside. */
export async function spawnChildren(
  _root: unknown,
  { input }: { input: { parentId: string; children: EnqueueJobInput[] } },
  context: Context,
  info: Info,
): Promise<{ parentId: string; results: EnqueueSuccess[] }> {
  authorise(context, 'operator')
  const parentId = jobIdArg(input.parentId)
  return replacingPaths(
    (path) => ['children', ...path],
    async () => {
      const spawned = await context.engine
        .spawnChildren(parentId, newJobs(input.children), { actor: context.viewer.name })
        .catch((error: unknown) => {
          throw error instanceof NotFoundError ? new ParentGoneError(parentId, 'there is no such job') : error
        })
      loadersOf(context, info).clear()
      return { parentId, results: spawned.children }
    },
  )
}

function newJobs(inputs: readonly EnqueueJobInput[]): NewJob[] {
  let count = 0
  const newJob = (input: EnqueueJobInput): NewJob => {
    if (++count > MAX_JOBS) throw new ValidationError([{ path: [], message: `more than ${MAX_JOBS} jobs in one call` }])
    const { assigneeId, metadata, timeouts, children, ...rest } = input
    return {
      ...present(rest),
      type: input.type,
      ...(metadata != null && { metadata: metadata as Json }),
      ...(assigneeId != null && { assigneeId: assigneeIdArg(assigneeId) }),
      ...(timeouts && { timeouts: present(timeouts) }),
      ...(children && { children: children.map(newJob) }),
    }
  }
  return inputs.map(newJob)
}

type Present<T> = { [Field in keyof T]?: Exclude<T[Field], null | undefined> }

/** The fields that are neither null nor absent. */
function present<T extends object>(input: T): Present<T> {
  return Object.fromEntries(
    Object.entries(input).filter(([, value]) => value !== null && value !== undefined),
  ) as Present<T>
}

/** Runs `fn`; issues of a validation error get the paths that the caller's input has. */
async function replacingPaths<T>(place: (path: string[]) => string[], fn: () => Promise<T>): Promise<T> {
  try {
    return await fn()
  } catch (error) {
    if (!(error instanceof ValidationError)) throw error
    throw new ValidationError(error.issues.map((issue): InputIssue => ({ ...issue, path: place(issue.path) })))
  }
}
