import type { Database } from '../../db/database.ts'
import { failFailingParents, type VerbOptions } from '../cascade.ts'
import { storedFilter } from '../engine-lists.ts'
import { checked } from '../input/check.ts'
import { JOB_FILTER } from '../input/options.ts'
import type { JobFilter } from '../reads/job-filter.ts'
import { type BulkOptions, type BulkReport, bulk } from './bulk.ts'
import { ARCHIVE, type BulkVerb, CANCEL, DELETE, RETRY } from './verbs.ts'

/** How a verb is done to many jobs. */
export type BulkJobsOptions = Partial<BulkOptions>

/**
 * Verbs done to all jobs that match: oldest first, at most `limit` of them, in small transactions, so that the rest goes on
 * beside them and what is done stays done if one fails. With `dryRun` they only say what would happen.
 */
export interface EngineBulk {
  /**
   * {@link Engine.cancelJob} for the active jobs that match.
   *
   * @throws {ValidationError} an empty filter, or a limit out of 1 to 10,000
   */
  cancelJobs(filter: JobFilter, options?: BulkJobsOptions): Promise<BulkReport>
  /**
   * {@link Engine.retryJob} for those that failed or were cancelled, and whose parent has not ended. Throws as `cancelJobs`.
   */
  retryJobs(filter: JobFilter, options?: BulkJobsOptions): Promise<BulkReport>
  /** {@link Engine.archiveJob} for those that match. Throws as `cancelJobs`. */
  archiveJobs(filter: JobFilter, options?: BulkJobsOptions): Promise<BulkReport>
  /** {@link Engine.deleteJob} for those that match. Throws as `cancelJobs`. */
  deleteJobs(filter: JobFilter, options?: BulkJobsOptions): Promise<BulkReport>
}

/** What the bulk verbs need of an engine. */
export interface BulkParts {
  db: Database
  /** Says in our own words that the database cannot be reached. */
  reach<T>(run: () => Promise<T>): Promise<T>
  /** Tells everybody that there is news. */
  ring(): void
  /** The options, checked, with the actor. */
  steering(options?: BulkJobsOptions): BulkJobsOptions & VerbOptions
}

export function createEngineBulk({ db, reach, ring, steering }: BulkParts): EngineBulk {
  const run = (verb: BulkVerb) => (filter: JobFilter, given?: BulkJobsOptions) =>
    reach(async () => {
      const options = steering(given)
      return bulk(db, verb, storedFilter(checked(JOB_FILTER, filter, ['filter'])), options, async ({ failing }) => {
        if (failing.length > 0) await failFailingParents(db, failing, { actor: options.actor })
        ring()
      })
    })
  return { cancelJobs: run(CANCEL), retryJobs: run(RETRY), archiveJobs: run(ARCHIVE), deleteJobs: run(DELETE) }
}
