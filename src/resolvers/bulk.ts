import type { GraphQLResolveInfo } from 'graphql'
import type { BulkReport } from '../engine/bulk/bulk.ts'
import type { JobFilter } from '../engine/reads/job-filter.ts'
import type { ApiEngine } from './api-engine.ts'
import { authorise, type Context, loadersOf } from './context.ts'
import { jobFilter } from './job-list.ts'

/** Input of the bulk verbs. */
export interface BulkInput {
  filter: JobFilter
  dryRun: boolean
  limit: number
  reason?: string | null | undefined
}

/** A bulk verb as a resolver; also its dry run is for who may do it. */
function bulk(name: 'cancelJobs' | 'retryJobs' | 'archiveJobs' | 'deleteJobs') {
  return async (
    _root: unknown,
    { input }: { input: BulkInput },
    context: Context,
    info: GraphQLResolveInfo,
  ): Promise<BulkReport> => {
    authorise(context, 'admin')
    const { filter, dryRun, limit, reason } = input
    const engine: Pick<ApiEngine, typeof name> = context.engine
    const options = { actor: context.viewer.name, dryRun, limit, ...(reason != null && { reason }) }
    const report = await engine[name](jobFilter(filter), options)
    loadersOf(context, info).clear()
    return report
  }
}

/** cancelJob for all that match. */
export const cancelJobs = bulk('cancelJobs')

/** retryJob for all that match. */
export const retryJobs = bulk('retryJobs')

/** archiveJob for all that match. */
export const archiveJobs = bulk('archiveJobs')

/** deleteJob for all that match. */
export const deleteJobs = bulk('deleteJobs')
