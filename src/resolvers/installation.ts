import type { GraphQLResolveInfo } from 'graphql'
import type { Assignee, AssigneeStatus } from '../engine/assignee.ts'
import { assigneePage } from '../engine/reads/assignees.ts'
import { type JobType, jobTypes } from '../engine/reads/job-types.ts'
import { type PageArgs, pageRequest } from '../engine/reads/page.ts'
import { type Queue, queues } from '../engine/reads/queues.ts'
import type { StateCounts } from '../engine/reads/state-counts.ts'
import { liveWorkers, type Worker } from '../engine/reads/workers.ts'
import { type Connection, connectionOf } from './connection.ts'
import { type Context, loadersOf } from './context.ts'

type Info = GraphQLResolveInfo

/** Types that live processes know, by name. */
export async function listJobTypes(_root: unknown, _args: unknown, { engine }: Context): Promise<JobType[]> {
  return jobTypes(engine.database, engine.jobs)
}

/** Queues that have jobs or workers, by name. */
export async function listQueues(_root: unknown, _args: unknown, { engine }: Context): Promise<Queue[]> {
  return queues(engine.database)
}

/** Workers whose heartbeat lives, the oldest first. */
export async function listWorkers(_root: unknown, _args: unknown, { engine }: Context): Promise<Worker[]> {
  return liveWorkers(engine.database)
}

/** A page of assignees, by id. */
export async function listAssignees(
  _root: unknown,
  args: PageArgs & { statuses?: readonly AssigneeStatus[] | null | undefined },
  context: Context,
): Promise<Connection<Assignee>> {
  return connectionOf(await assigneePage(context.engine.database, pageRequest(args), args.statuses ?? null))
}

/** The jobs of a type, by state. */
export function jobTypeCounts(type: JobType, _args: unknown, context: Context, info: Info): Promise<StateCounts> {
  return loadersOf(context, info).countsOf((group) => group.type === type.name)
}

/** The jobs on a queue, by state. */
export function queueCounts(queue: Queue, _args: unknown, context: Context, info: Info): Promise<StateCounts> {
  return loadersOf(context, info).countsOf((group) => group.queue === queue.name)
}

/** The jobs of an assignee, by state. */
export function assigneeCounts(assignee: Assignee, _args: unknown, context: Context, info: Info): Promise<StateCounts> {
  return loadersOf(context, info).assignedCounts.load(assignee.id)
}
