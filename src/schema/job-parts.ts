import { formatId } from '../engine/ids.ts'
import type { Progress as EngineProgress, Timeouts as EngineTimeouts } from '../engine/job.ts'
import type { Attempt as EngineAttempt } from '../engine/reads/attempts.ts'
import type { WakeReceipt as EngineReceipt } from '../engine/reads/receipts.ts'
import { jobGlobalId } from '../resolvers/global-ids.ts'
import { errorStack } from '../resolvers/job-fields.ts'
import { builder } from './builder.ts'
import { FailureCode, JobState, Phase, WaitTimeoutAction, WakeSource } from './enums.ts'

export const Progress = builder.objectRef<EngineProgress>('Progress').implement({
  description: 'How far a job says it is.',
  fields: (t) => ({
    current: t.exposeFloat('current', { description: "Done, in the job's own unit." }),
    total: t.float({
      nullable: true,
      description: 'Of how many; null if unknown.',
      resolve: (progress) => progress.total ?? null,
    }),
    message: t.string({
      nullable: true,
      description: 'In words.',
      resolve: (progress) => progress.message ?? null,
    }),
  }),
})

export const Timeouts = builder.objectRef<EngineTimeouts>('Timeouts').implement({
  description: 'Time limits of a job; null is none.',
  fields: (t) => ({
    ingest: t.field({
      type: 'Duration',
      nullable: true,
      description: 'Longest attempt in INGEST, and of a one-phase job.',
      resolve: (timeouts) => timeouts.ingest ?? null,
    }),
    aggregate: t.field({
      type: 'Duration',
      nullable: true,
      description: 'Longest attempt in AGGREGATE.',
      resolve: (timeouts) => timeouts.aggregate ?? null,
    }),
    wait: t.field({
      type: 'Duration',
      nullable: true,
      description: 'Longest stay in WAITING, per wave.',
      resolve: (timeouts) => timeouts.wait ?? null,
    }),
    onWaitTimeout: t.field({
      type: WaitTimeoutAction,
      description: 'What happens then.',
      resolve: (timeouts) => timeouts.onWaitTimeout ?? 'fail',
    }),
  }),
})

export const Attempt = builder.objectRef<EngineAttempt>('Attempt').implement({
  description: 'One claim of a job.',
  fields: (t) => ({
    number: t.exposeInt('number', { description: 'Counts the claims of the job: 1, 2, …' }),
    phase: t.expose('phase', { type: Phase, description: 'What it ran.' }),
    wave: t.exposeInt('wave', { description: 'For which wave.' }),
    workerId: t.id({
      description: 'Id of the worker, which may be gone.',
      resolve: (attempt) => formatId('WK', attempt.workerId),
    }),
    startedAt: t.expose('startedAt', { type: 'DateTime', description: 'When it was claimed.' }),
    endedAt: t.expose('endedAt', {
      type: 'DateTime',
      nullable: true,
      description: 'When it ended; null while it runs.',
    }),
    endedIn: t.expose('endedIn', {
      type: JobState,
      nullable: true,
      description: 'State it ended in; null while it runs.',
    }),
    error: t.exposeString('error', { nullable: true, description: "Its error's message; null if none." }),
    errorCode: t.expose('errorCode', {
      type: FailureCode,
      nullable: true,
      description: "Its error's kind; null if none.",
    }),
    errorStack: t.string({
      nullable: true,
      description: "Its error's stack; null if none, or below OPERATOR.",
      resolve: errorStack,
    }),
  }),
})

export const WakeReceipt = builder.objectRef<EngineReceipt>('WakeReceipt').implement({
  description: "The proof of a parent's last wake: one per parent.",
  fields: (t) => ({
    parentId: t.id({ description: 'Whose.', resolve: (receipt) => jobGlobalId(receipt.parentId) }),
    childSetKey: t.exposeString('childSetKey', { description: 'SHA-256 of the child set that was delivered.' }),
    operationId: t.exposeString('operationId', {
      description: 'Same for edge, reconciler and re-wake of the same set.',
    }),
    wave: t.exposeInt('wave', { description: 'Which wave it began.' }),
    deliveredAttempt: t.exposeInt('deliveredAttempt', {
      nullable: true,
      description: 'The attempt that aggregated it; null until claimed.',
    }),
    source: t.expose('source', { type: WakeSource, description: 'Who noticed.' }),
    forced: t.exposeBoolean('forced', { description: 'Woken with children open, or again for the same set.' }),
    at: t.expose('at', { type: 'DateTime', description: 'When.' }),
  }),
})
