import type { BulkReport } from '../engine/bulk/bulk.ts'
import { ValidationError } from '../engine/errors.ts'
import { archiveJobs, type BulkInput, cancelJobs, deleteJobs, retryJobs } from '../resolvers/bulk.ts'
import { builder } from './builder.ts'
import './errors.ts'
import { JobFilter } from './filters.ts'
import { Job } from './refs.ts'

const BulkJobsInput = builder.inputRef<BulkInput>('BulkJobsInput')
BulkJobsInput.implement({
  description: 'Input of the bulk verbs.',
  fields: (t) => ({
    filter: t.field({
      type: JobFilter,
      required: true,
      description: 'Which jobs, of those whose state allows the verb; an empty filter is refused.',
    }),
    dryRun: t.boolean({ required: true, defaultValue: false, description: 'Only say what would happen.' }),
    limit: t.int({
      required: true,
      defaultValue: 1000,
      description:
        'At most this many jobs, oldest first; 1-10000. They are done in small transactions: what is done stays done.',
    }),
    reason: t.string({ description: 'Why, for the audit trail.' }),
  }),
})

const BulkJobsSuccess = builder.objectRef<BulkReport>('BulkJobsSuccess').implement({
  description: 'What a bulk verb did, or would do.',
  fields: (t) => ({
    dryRun: t.exposeBoolean('dryRun', { description: 'Nothing was done.' }),
    matched: t.exposeInt('matched', {
      description: 'Jobs that match and whose state allows the verb, over the limit too.',
    }),
    changed: t.exposeInt('changed', {
      description: 'Jobs changed, or that would be; call again while below `matched`, unless it is 0.',
    }),
    cancelledDescendants: t.exposeInt('cancelledDescendants', {
      description: 'Active descendants cancelled with them that do not match themselves, or that would be.',
    }),
    sample: t.expose('sample', {
      type: [Job],
      description: 'The first ten, as they are after (or before, in a dry run); deleted ones as they were.',
    }),
  }),
})

const BulkJobsResult = builder.errorUnion('BulkJobsResult', {
  description: 'Answer of the bulk verbs.',
  types: [BulkJobsSuccess, ValidationError],
  resolveType: () => 'BulkJobsSuccess',
})

builder.mutationFields((t) => {
  const bulkField = (description: string, resolve: typeof cancelJobs) =>
    t.field({
      type: BulkJobsResult,
      description,
      args: { input: t.arg({ type: BulkJobsInput, required: true, description: 'Which.' }) },
      resolve,
    })
  return {
    cancelJobs: bulkField('cancelJob for all that match.', cancelJobs),
    retryJobs: bulkField(
      'retryJob for all that match. A child whose parent has ended is not among them: retry the parent.',
      retryJobs,
    ),
    archiveJobs: bulkField('archiveJob for all that match.', archiveJobs),
    deleteJobs: bulkField('deleteJob for all that match.', deleteJobs),
  }
})
