import type { GraphQLResolveInfo } from 'graphql'
import type { Database } from '../db/database.ts'
import type { Assignee } from '../engine/assignee.ts'
import { CursorExpiredError } from '../engine/errors.ts'
import { orphans, stuckParents } from '../engine/explain/dry-runs.ts'
import type { FeedBatch } from '../engine/feed/batch.ts'
import type { JobEvent } from '../engine/feed/event.ts'
import type { JobEventFilter } from '../engine/feed/filter.ts'
import type { Job } from '../engine/job.ts'
import type { Heavy } from '../engine/reads/columns.ts'
import { jobPage } from '../engine/reads/job-page.ts'
import {
  checkedSize,
  PAGE_LIMITS,
  type Page,
  type PageArgs,
  type PageRequest,
  pageRequest,
} from '../engine/reads/page.ts'
import type { Worker } from '../engine/reads/workers.ts'
import { BadRequestError } from './bad-request.ts'
import { type Connection, connectionOf } from './connection.ts'
import { type Context, loadersOf } from './context.ts'
import { eventFilter } from './event-filter.ts'
import { jobIdArg, parseGlobalId } from './global-ids.ts'
import { type JobListArgs, jobListRequest } from './job-list.ts'
import { presentCursor } from './present-cursor.ts'

type Info = GraphQLResolveInfo

/** A node, with the name of its type. */
export type FoundNode =
  | { type: 'Job'; value: Job }
  | { type: 'JobEvent'; value: JobEvent }
  | { type: 'Assignee'; value: Assignee }
  | { type: 'Worker'; value: Worker }

/** Anything by its global id; null if there is no such thing. */
export async function findNode(globalId: string, context: Context, info: Info): Promise<FoundNode | null> {
  const { prefix, id } = parseGlobalId(globalId)
  const loaders = loadersOf(context, info)
  switch (prefix) {
    case 'JB': {
      const value = await loaders.job.load(id)
      return value && { type: 'Job', value }
    }
    case 'EV': {
      // Numbers with leading zeros name the same event.
      const value = await loaders.event.load(String(BigInt(id)))
      return value && { type: 'JobEvent', value }
    }
    case 'AS': {
      const value = await loaders.assignee.load(id)
      return value && { type: 'Assignee', value }
    }
    case 'WK': {
      const value = await loaders.worker.load(id)
      return value && { type: 'Worker', value }
    }
  }
}

/** Things by their ids, in that order, null where there is none. */
export async function findNodes(
  globalIds: readonly string[],
  context: Context,
  info: Info,
): Promise<(FoundNode | null)[]> {
  if (globalIds.length < 1 || globalIds.length > PAGE_LIMITS.max) {
    throw new BadRequestError(`\`ids\` must be 1 to ${PAGE_LIMITS.max} ids, not ${globalIds.length}.`)
  }
  return Promise.all(globalIds.map((id) => findNode(id, context, info)))
}

/** A job; null if there is none. */
export async function findJob(_root: unknown, args: { id: string }, context: Context, info: Info): Promise<Job | null> {
  return loadersOf(context, info).job.load(jobIdArg(args.id))
}

/** A page of all jobs, newest first by default. */
export async function listJobs(
  _root: unknown,
  args: JobListArgs,
  context: Context,
  info: Info,
): Promise<Connection<Job>> {
  const request = jobListRequest(args, { field: 'created_at', direction: 'desc' })
  const loaders = loadersOf(context, info)
  const page = await jobPage(context.engine.database, { ...request, heavy: loaders.heavy })
  loaders.prime(page.edges.map((edge) => edge.node))
  return connectionOf(page)
}

/** What maintenance would do, page by page. */
function dryRun(read: (db: Database, page: PageRequest, heavy: Heavy) => Promise<Page<Job>>) {
  return async (_root: unknown, args: PageArgs, context: Context, info: Info): Promise<Connection<Job>> => {
    const loaders = loadersOf(context, info)
    const page = await read(context.engine.database, pageRequest(args), loaders.heavy)
    loaders.prime(page.edges.map((edge) => edge.node))
    return connectionOf(page)
  }
}

/** Parents that the reconciler would wake now, or withholds. */
export const listStuckParents = dryRun(stuckParents)

/** Jobs that the orphan sweep would cancel now. */
export const listOrphans = dryRun(orphans)

/** Some of the event log, from a cursor on. */
export async function pullEvents(
  _root: unknown,
  args: { filter?: JobEventFilter | null | undefined; after?: string | null | undefined; first: number },
  context: Context,
): Promise<FeedBatch> {
  const first = checkedSize('first', args.first, PAGE_LIMITS.max)
  try {
    return await context.engine.feed.read({ filter: eventFilter(args.filter), after: args.after, first })
  } catch (error) {
    if (!(error instanceof CursorExpiredError)) throw error
    return { events: [], cursor: await presentCursor(context), caughtUp: true, ended: 'cursor_expired' }
  }
}
