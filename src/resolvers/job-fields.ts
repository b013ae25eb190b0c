import type { GraphQLResolveInfo } from 'graphql'
import type { Assignee } from '../engine/assignee.ts'
import type { Explanation } from '../engine/explain/explanation.ts'
import type { JobEvent } from '../engine/feed/event.ts'
import type { Job } from '../engine/job.ts'
import type { Attempt } from '../engine/reads/attempts.ts'
import { checkedSize, PAGE_LIMITS, type PageArgs, pageRequest } from '../engine/reads/page.ts'
import type { WakeReceipt } from '../engine/reads/receipts.ts'
import type { StateCounts } from '../engine/reads/state-counts.ts'
import type { Worker } from '../engine/reads/workers.ts'
import { type Connection, connectionOf } from './connection.ts'
import { type Context, loadersOf } from './context.ts'
import { type JobListArgs, jobListRequest } from './job-list.ts'
import { includesRole } from './viewer.ts'

type Info = GraphQLResolveInfo

/** The parent; null for a root and after the parent was deleted. */
export async function jobParent(job: Job, _args: unknown, context: Context, info: Info): Promise<Job | null> {
  return job.parentId === null ? null : loadersOf(context, info).job.load(job.parentId)
}

/** The root; null after it was deleted. */
export async function jobRoot(job: Job, _args: unknown, context: Context, info: Info): Promise<Job | null> {
  return loadersOf(context, info).job.load(job.treeId)
}

/** A page of the children, oldest first by default. */
export async function jobChildren(job: Job, args: JobListArgs, context: Context, info: Info): Promise<Connection<Job>> {
  const request = jobListRequest(args, { field: 'created_at', direction: 'asc' })
  return connectionOf(await loadersOf(context, info).children(request).load(job.id))
}

/** The children by state. */
export async function jobChildCounts(job: Job, _args: unknown, context: Context, info: Info): Promise<StateCounts> {
  return loadersOf(context, info).childCounts.load(job.id)
}

/** A page of the audit trail, oldest first. */
export async function jobEvents(job: Job, args: PageArgs, context: Context, info: Info): Promise<Connection<JobEvent>> {
  return connectionOf(await loadersOf(context, info).events(pageRequest(args)).load(job.id))
}

/** The newest attempts. */
export async function jobAttempts(
  job: Job,
  { first }: { first: number },
  context: Context,
  info: Info,
): Promise<Attempt[]> {
  return loadersOf(context, info)
    .attempts(checkedSize('first', first, PAGE_LIMITS.max))
    .load(job.id)
}

/** The proof of the last wake; null before the first. */
export async function jobReceipt(job: Job, _args: unknown, context: Context, info: Info): Promise<WakeReceipt | null> {
  return loadersOf(context, info).receipt.load(job.id)
}

/** Why it does not move, the decisive reason first. */
export async function jobExplain(job: Job, _args: unknown, context: Context, info: Info): Promise<Explanation[]> {
  return loadersOf(context, info).explanations.load(job.id)
}

/** The jobs that an explanation speaks of; without those that were deleted since. */
export async function explainedJobs(
  explanation: Explanation,
  _args: unknown,
  context: Context,
  info: Info,
): Promise<Job[]> {
  const { job } = loadersOf(context, info)
  const found = await Promise.all(explanation.jobs.map((id) => job.load(id)))
  return found.filter((one) => one !== null)
}

/** The assignee; null if none is set or it is unknown. */
export async function jobAssignee(job: Job, _args: unknown, context: Context, info: Info): Promise<Assignee | null> {
  return job.assigneeId === null ? null : loadersOf(context, info).assignee.load(job.assigneeId)
}

/** Who runs it; null unless it is RUNNING, and for a worker that has gone. */
export async function jobWorker(job: Job, _args: unknown, context: Context, info: Info): Promise<Worker | null> {
  const { state, workerId } = job
  return state !== 'running' || workerId === null ? null : loadersOf(context, info).worker.load(workerId)
}

/** Stacks tell of the program's inside: they are for those who steer it. */
export function errorStack(of: { errorStack: string | null }, _args: unknown, context: Context): string | null {
  return includesRole(context.viewer, 'operator') ? of.errorStack : null
}
