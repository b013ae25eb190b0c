import type { Database } from '../db/database.ts'
import type { Assignee, AssigneeStatus } from './assignee.ts'
import type { JobRegistry } from './definition/job-registry.ts'
import { ValidationError } from './errors.ts'
import { parseJobId } from './ids.ts'
import { checkedOptions } from './input/check.ts'
import { ASSIGNEES_REQUEST, JOBS_REQUEST } from './input/options.ts'
import type { Job } from './job.ts'
import { assigneePage } from './reads/assignees.ts'
import { ALL_HEAVY } from './reads/columns.ts'
import { type GroupCount, groupCounts } from './reads/groups.ts'
import type { JobFilter } from './reads/job-filter.ts'
import { type JobOrder, jobPage } from './reads/job-page.ts'
import { type JobType, jobTypes } from './reads/job-types.ts'
import { type Page, type PageArgs, pageRequest } from './reads/page.ts'
import { type Queue, queues } from './reads/queues.ts'
import { liveWorkers, type Worker } from './reads/workers.ts'

/** Which jobs to list, in which order, and which page of them. */
export interface JobsRequest extends PageArgs {
  filter?: JobFilter
  /** Default: by `created_at`, the newest first. */
  order?: JobOrder
}

/** What there is: lists as in the API, 20 to a page unless told otherwise, at most 100. */
export interface EngineLists {
  /**
   * A page of the jobs that match, the newest first unless told otherwise.
   *
   * @throws {ValidationError} an id that is none, or a filter that the database cannot hold
   * @throws {InvalidCursorError}
   */
  listJobs(request?: JobsRequest): Promise<Page<Job>>
  /** How many jobs there are by queue, type and state, archived ones left out: some tenths of a second for a million. */
  jobCounts(): Promise<GroupCount[]>
  /** The types that live workers run, or that are known here. */
  jobTypes(): Promise<JobType[]>
  /** The queues that have jobs or workers. */
  queues(): Promise<Queue[]>
  /** A page of the assignees by id. */
  assignees(request?: PageArgs & { statuses?: readonly AssigneeStatus[] }): Promise<Page<Assignee>>
  /** The workers whose heartbeat lives. */
  workers(): Promise<Worker[]>
}

const NEWEST_FIRST: JobOrder = { field: 'created_at', direction: 'desc' }

/** The lists of an engine; `reach` says in our own words that the database cannot be reached. */
export function createEngineLists(
  db: Database,
  registry: JobRegistry,
  reach: <T>(run: () => Promise<T>) => Promise<T>,
): EngineLists {
  return {
    listJobs: (request) =>
      reach(async () => {
        const { filter = {}, order = NEWEST_FIRST, ...page } = checkedOptions(JOBS_REQUEST, request) ?? {}
        return jobPage(db, { filter: storedFilter(filter), order, page: pageRequest(page), heavy: ALL_HEAVY })
      }),
    jobCounts: () => reach(() => groupCounts(db)),
    jobTypes: () => reach(() => jobTypes(db, registry)),
    queues: () => reach(() => queues(db)),
    assignees: (request) =>
      reach(async () => {
        const { statuses, ...page } = checkedOptions(ASSIGNEES_REQUEST, request) ?? {}
        return assigneePage(db, pageRequest(page), statuses ?? null)
      }),
    workers: () => reach(() => liveWorkers(db)),
  }
}

/**
 * A filter with ids as they are stored, from one with `JB_…`, `AS_…` and `WK_…`.
 *
 * @throws {ValidationError} an id that is none
 */
export function storedFilter(filter: JobFilter): JobFilter {
  return {
    ...filter,
    ids: filter.ids?.map(parseJobId),
    treeId: filter.treeId && parseJobId(filter.treeId),
    parentId: filter.parentId && parseJobId(filter.parentId),
    assigneeIds: filter.assigneeIds?.map((id) => (id.startsWith('AS_') ? id.slice(3) : id)),
    workerIds: filter.workerIds?.map(parseWorkerId),
  }
}

function parseWorkerId(id: string): string {
  try {
    return parseJobId(id.startsWith('WK_') ? id.slice(3) : id)
  } catch {
    throw ValidationError.of('workerIds', `Not a worker id: ${JSON.stringify(id)}. Expected WK_<uuid> or a UUID.`)
  }
}
