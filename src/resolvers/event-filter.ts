import type { JobEventFilter } from '../engine/feed/filter.ts'
import { jobIdArg, jobIdArgs } from './global-ids.ts'

/** The filter with stored ids; errors for ids that make no sense. */
export function eventFilter(filter: JobEventFilter | null | undefined): JobEventFilter {
  return {
    ...filter,
    treeId: filter?.treeId && jobIdArg(filter.treeId),
    jobIds: filter?.jobIds && jobIdArgs(filter.jobIds),
  }
}
