import type { GraphQLResolveInfo } from 'graphql'
import { NotFoundError } from '../engine/errors.ts'
import { formatJobId } from '../engine/ids.ts'
import type { Job } from '../engine/job.ts'
import { type Context, loadersOf } from './context.ts'

/**
 * A job that was there a moment ago.
 *
 * @throws {NotFoundError} it was deleted meanwhile
 */
export async function presentJob(id: string, context: Context, info: GraphQLResolveInfo): Promise<Job> {
  const job = await loadersOf(context, info).job.load(id)
  if (!job) throw new NotFoundError(formatJobId(id))
  return job
}

/** Jobs that were there a moment ago, without those that were deleted meanwhile. */
export async function presentJobs(ids: readonly string[], context: Context, info: GraphQLResolveInfo): Promise<Job[]> {
  const jobs = await Promise.all(ids.map((id) => loadersOf(context, info).job.load(id)))
  return jobs.filter((job) => job !== null)
}
