import { type InputIssue, ValidationError } from './errors.ts'
import { newJobId } from './ids.ts'
import { JobChecker } from './input/job-checker.ts'
import { KEY, NAME } from './input/text.ts'
import type { ChildFailurePolicy, NewJob, OrphanPolicy, Timeouts } from './job.ts'

/** What a type that is known here says about its jobs. */
export interface KnownType {
  /** Used where the job itself says nothing. */
  readonly defaults: Omit<NewJob, 'type' | 'payload' | 'children' | 'key'>
  /** What is wrong with a payload, paths within it; empty if nothing. */
  checkPayload(payload: unknown): Promise<InputIssue[]>
  /**
   * What the type's concurrency limit counts by; only of types that have one.
   *
   * @throws whatever the type's own function throws
   */
  concurrencyKey?(payload: unknown): Promise<string>
}

/** The types known in this process. */
export interface KnownTypes {
  get(type: string): KnownType | undefined
}

/** A job that passed every check and has its id: what the insert takes. */
export interface PreparedJob {
  readonly id: string
  readonly type: string
  readonly queue: string
  readonly priority: number
  readonly runAt: Date | null
  readonly key: string | null
  /** JSON text. */
  readonly payload: string
  /** JSON text. */
  readonly metadata: string
  readonly maxRetries: number
  readonly assigneeId: string | null
  readonly ephemeral: boolean
  readonly onChildFailure: ChildFailurePolicy
  readonly failureTolerance: string | null
  readonly orphanPolicy: OrphanPolicy
  readonly timeouts: Timeouts
  readonly concurrencyKey: string | null
  /** Null: none were given. Siblings with the same type and key are one. */
  readonly children: readonly PreparedJob[] | null
}

/** What a job has that neither itself nor its type says anything of. */
export const USUAL = {
  queue: 'default',
  priority: 0,
  maxRetries: 2,
  ephemeral: false,
  onChildFailure: 'continue',
  orphanPolicy: 'cancel',
  /** Of payload, metadata and timeouts. */
  json: '{}',
} as const

/** Deepest tree that one call may enqueue. */
export const MAX_TREE_DEPTH = 50

const INT32 = 2 ** 31 - 1

const JOB_FIELDS: ReadonlySet<string> = new Set<keyof NewJob>([
  'type',
  'payload',
  'queue',
  'priority',
  'runAt',
  'key',
  'metadata',
  'maxRetries',
  'assigneeId',
  'onChildFailure',
  'failureTolerance',
  'orphanPolicy',
  'timeouts',
  'ephemeral',
  'concurrencyKey',
  'children',
])

/**
 * Checks jobs and their children, fills in defaults and assigns ids.
 *
 * @throws {ValidationError} with every issue found, each with its path from the list down.
 */
export async function prepareJobs(jobs: readonly NewJob[], known?: KnownTypes): Promise<PreparedJob[]> {
  if (!Array.isArray(jobs)) throw ValidationError.of('', 'must be a list of jobs')
  const issues: InputIssue[] = []
  const prepared: PreparedJob[] = []
  for (const [index, job] of jobs.entries()) {
    const one = await prepareJob(job, [String(index)], 0, known, issues)
    if (one) prepared.push(one)
  }
  if (issues.length > 0) throw new ValidationError(issues)
  return prepared
}

/** As {@link prepareJobs} for one job; paths of issues start at the job itself. */
export async function prepareOneJob(job: NewJob, known?: KnownTypes): Promise<PreparedJob> {
  const issues: InputIssue[] = []
  const prepared = await prepareJob(job, [], 0, known, issues)
  if (!prepared) throw new ValidationError(issues)
  return prepared
}

async function prepareJob(
  job: NewJob,
  path: string[],
  depth: number,
  known: KnownTypes | undefined,
  issues: InputIssue[],
): Promise<PreparedJob | undefined> {
  const before = issues.length
  const check = new JobChecker(path, issues)
  if (typeof job !== 'object' || job === null) {
    check.fail([], 'is not a job: expected an object with a type')
    return undefined
  }
  check.known([], job, JOB_FIELDS)
  const type = check.text('type', job.type, NAME) ?? ''
  const knownType = known?.get(type)
  const merged = withDefaults(job, knownType?.defaults)
  const payload = merged.payload ?? {}
  const payloadText = check.json('payload', payload)
  if (knownType && payloadText !== undefined) {
    for (const issue of await knownType.checkPayload(payload)) check.fail(['payload', ...issue.path], issue.message)
  }
  const result = {
    id: newJobId(),
    type,
    queue: merged.queue === undefined ? USUAL.queue : (check.text('queue', merged.queue, NAME) ?? ''),
    priority: check.integer('priority', merged.priority ?? USUAL.priority, -INT32, INT32),
    runAt: check.instant('runAt', merged.runAt),
    key: merged.key === undefined ? null : (check.text('key', merged.key, KEY) ?? null),
    payload: payloadText ?? USUAL.json,
    metadata: check.json('metadata', merged.metadata ?? {}) ?? USUAL.json,
    maxRetries: check.integer('maxRetries', merged.maxRetries ?? USUAL.maxRetries, 0, 1_000_000),
    assigneeId: merged.assigneeId === undefined ? null : (check.text('assigneeId', merged.assigneeId, NAME) ?? null),
    ephemeral: check.boolean('ephemeral', merged.ephemeral ?? USUAL.ephemeral),
    onChildFailure: check.oneOf('onChildFailure', merged.onChildFailure ?? USUAL.onChildFailure, [
      'continue',
      'fail_parent',
      'ignore',
    ] as const),
    failureTolerance: check.tolerance('failureTolerance', merged.failureTolerance),
    orphanPolicy: check.oneOf('orphanPolicy', merged.orphanPolicy ?? USUAL.orphanPolicy, ['cancel', 'keep'] as const),
    timeouts: check.timeouts(knownType?.defaults.timeouts, job.timeouts),
    concurrencyKey: await check.concurrencyKey(
      merged.concurrencyKey ?? (issues.length === before ? knownType?.concurrencyKey?.(payload) : undefined),
    ),
    children: null as PreparedJob[] | null,
  }
  if (merged.children !== undefined && merged.children !== null) {
    if (!Array.isArray(merged.children)) check.fail(['children'], 'is not a list')
    else if (depth + 1 >= MAX_TREE_DEPTH) check.fail(['children'], `is deeper than ${MAX_TREE_DEPTH} levels`)
    else {
      const children: PreparedJob[] = []
      for (const [index, child] of merged.children.entries()) {
        const one = await prepareJob(child, [...path, 'children', String(index)], depth + 1, known, issues)
        if (one) children.push(one)
      }
      result.children = [...firstOfEachKey(children).first]
    }
  }
  return issues.length === before ? result : undefined
}

/** Splits siblings into the first of each (type, key) and, for the others, which one they are the same as. */
export function firstOfEachKey(siblings: readonly PreparedJob[]): {
  first: PreparedJob[]
  sameAs: Map<PreparedJob, PreparedJob>
} {
  const byKey = new Map<string, PreparedJob>()
  const first: PreparedJob[] = []
  const sameAs = new Map<PreparedJob, PreparedJob>()
  for (const job of siblings) {
    const key = job.key === null ? undefined : JSON.stringify([job.type, job.key])
    const earlier = key === undefined ? undefined : byKey.get(key)
    if (earlier) {
      sameAs.set(job, earlier)
      continue
    }
    if (key !== undefined) byKey.set(key, job)
    first.push(job)
  }
  return { first, sameAs }
}

/** The job over the defaults of its type; what it leaves undefined, it does not say. */
function withDefaults(job: NewJob, defaults: KnownType['defaults'] | undefined): NewJob {
  if (defaults === undefined) return job
  const merged: Record<string, unknown> = { ...defaults }
  for (const [name, value] of Object.entries(job)) if (value !== undefined) merged[name] = value
  return merged as unknown as NewJob
}
