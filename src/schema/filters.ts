import type { JobFilter as EngineJobFilter } from '../engine/reads/job-filter.ts'
import { builder } from './builder.ts'
import { FailureCode, JobEventKind, JobOrderField, JobState, OrderDirection } from './enums.ts'

export const JobFilter = builder.inputRef<EngineJobFilter>('JobFilter')
JobFilter.implement({
  description: 'Which jobs: every given field must hold; a list means any of.',
  fields: (t) => ({
    ids: t.idList({ description: 'These.' }),
    treeId: t.id({ description: 'Of this tree.' }),
    parentId: t.id({ description: 'Children of this job, also after it was deleted.' }),
    parentWave: t.int({ description: 'Children of this wave of their parent.' }),
    roots: t.boolean({ description: 'True: roots only; false: children only.' }),
    states: t.field({ type: [JobState], description: 'In these states.' }),
    types: t.stringList({ description: 'Of these types.' }),
    queues: t.stringList({ description: 'On these queues.' }),
    key: t.string({ description: 'With this key.' }),
    assigneeIds: t.idList({ description: 'Of these assignees.' }),
    workerIds: t.idList({ description: 'RUNNING on these workers.' }),
    errorCodes: t.field({ type: [FailureCode], description: 'With these last errors.' }),
    error: t.string({
      description:
        "Text in the last error's message. Alone, it is looked for in the newest 100,000 jobs of each error code.",
    }),
    metadata: t.field({ type: 'JSON', description: 'Metadata contains this.' }),
    search: t.string({
      description:
        'Text in id, key, type or error. A whole id is found in any case, other text in the newest 100,000 jobs; in all of what `parentId`, `treeId`, `assigneeIds`, `errorCodes` or `key` leave.',
    }),
    createdAfter: t.field({ type: 'DateTime', description: 'Enqueued at or after.' }),
    createdBefore: t.field({ type: 'DateTime', description: 'Enqueued before.' }),
    archived: t.boolean({
      defaultValue: false,
      description: 'False: without archived ones; true: only those; null: both.',
    }),
  }),
})

export const JobEventFilter = builder.inputType('JobEventFilter', {
  description: 'Which events: every given field must hold; a list means any of.',
  fields: (t) => ({
    treeId: t.id({ description: 'Of this tree.' }),
    jobIds: t.idList({ description: 'Of these jobs.' }),
    roots: t.boolean({ description: 'True: of roots only; false: of children only.' }),
    types: t.stringList({ description: 'Of jobs of these types.' }),
    kinds: t.field({ type: [JobEventKind], description: 'Of these kinds.' }),
    to: t.field({ type: [JobState], description: 'Into these states.' }),
  }),
})

export const JobOrder = builder.inputType('JobOrder', {
  description: 'Order of a list of jobs.',
  fields: (t) => ({
    field: t.field({
      type: JobOrderField,
      required: true,
      defaultValue: 'created_at',
      description: 'By which instant.',
    }),
    direction: t.field({
      type: OrderDirection,
      required: true,
      defaultValue: 'desc',
      description: 'Which way.',
    }),
  }),
})
