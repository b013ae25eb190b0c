import type { JobFilter } from '../engine/reads/job-filter.ts'
import type { JobOrder } from '../engine/reads/job-page.ts'
import { type PageArgs, pageRequest } from '../engine/reads/page.ts'
import { assigneeIdArg, jobIdArg, jobIdArgs, workerIdArg } from './global-ids.ts'
import type { ChildrenRequest } from './loaders.ts'

/** Arguments of a list of jobs, ids as the caller wrote them. */
export interface JobListArgs extends PageArgs {
  filter?: JobFilter | null | undefined
  orderBy?: JobOrder | null | undefined
}

/** What a list's arguments ask for; errors for ids and page sizes that make no sense. */
export function jobListRequest(args: JobListArgs, defaultOrder: JobOrder): ChildrenRequest {
  return {
    filter: jobFilter(args.filter ?? {}),
    order: args.orderBy ?? defaultOrder,
    page: pageRequest(args),
  }
}

/** A filter with stored ids. */
export function jobFilter(filter: JobFilter): JobFilter {
  return {
    ...filter,
    ids: filter.ids && jobIdArgs(filter.ids),
    treeId: filter.treeId && jobIdArg(filter.treeId),
    parentId: filter.parentId && jobIdArg(filter.parentId),
    assigneeIds: filter.assigneeIds?.map(assigneeIdArg),
    workerIds: filter.workerIds?.map(workerIdArg),
  }
}
