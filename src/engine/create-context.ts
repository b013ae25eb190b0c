import type { Logger } from 'pino'
import type { Database } from '../db/database.ts'
import type { LazyAbort } from './abort.ts'
import { saveCheckpoint } from './checkpoint.ts'
import { type ChildrenOptions, type ChildrenSource, countChildren, readChildren } from './children.ts'
import type { ClaimedJob } from './claim.ts'
import type { JobContext } from './context.ts'
import type { AnyContract } from './contract.ts'
import type { AnyDefinition } from './define-job.ts'
import { LeaseLostError, ValidationError } from './errors.ts'
import { existingChildren } from './existing-children.ts'
import { formatId, formatJobId } from './ids.ts'
import type { Json, NewJob } from './job.ts'
import { toJsonText } from './json.ts'
import { ObservedPromise } from './observed-promise.ts'
import type { OutageGuard } from './outage.ts'
import { type KnownTypes, type PreparedJob, prepareJobs } from './prepare.ts'
import { ProgressReporter } from './progress.ts'
import { SpawnedChildren } from './spawned-children.ts'
import { parseJsonOrThrow } from './standard-schema.ts'

/** What attempts need of their worker. */
export interface AttemptServices {
  readonly db: Database
  readonly known: KnownTypes
  readonly outages: OutageGuard
  readonly logger: Logger
  readonly workerId: string
  /** An event was written besides those of settling. */
  onWritten(): void
}

/** An attempt's context, and what its handler did with it. */
export interface AttemptContext {
  readonly ctx: JobContext
  /** Children spawned; null if spawn was never called. */
  spawned(): readonly PreparedJob[] | null
  /** The handler has ended: waits for what it left undone, and throws what failed unseen. */
  finish(): Promise<void>
  /** Nothing is taken any more. */
  close(): void
}

/**
 * Makes the context of one attempt.
 *
 * @param onStale a write was refused: the attempt no longer holds its job.
 * @throws {ValidationError} when the payload or the checkpoint is not what the type's schemas say.
 */
export async function createContext(
  services: AttemptServices,
  job: ClaimedJob,
  definition: AnyDefinition,
  abort: LazyAbort,
  onStale: () => void,
): Promise<AttemptContext> {
  const { db, known, outages } = services
  const payload = await parseJsonOrThrow(definition.payload, job.payload, 'payload')
  const parseSaved = (saved: Json) => parseJsonOrThrow(definition.checkpoint, saved, 'checkpoint')
  let saved = job.checkpoint === null ? null : await parseSaved(job.checkpoint)
  let spawned: SpawnedChildren | null = null
  let over = false
  let log: Logger | undefined
  const undone = new Set<ObservedPromise<unknown>>()

  const attempt = async <T>(query: () => Promise<T>): Promise<T> => {
    abort.throwIfAborted()
    return outages.persist(query, abort.signal)
  }
  const source: ChildrenSource = { db, parentId: job.id, spawnWave: job.spawnWave, attempt }
  let progress: ProgressReporter | undefined
  const newProgress = () =>
    new ProgressReporter({
      db,
      jobId: job.id,
      claimToken: job.claimToken,
      actor: formatId('WK', services.workerId),
      attempt,
      onStale,
      onError: (error) => {
        if (!abort.aborted) services.logger.warn({ err: error, job: formatJobId(job.id) }, 'Progress was not written')
      },
      onWritten: services.onWritten,
    })
  /** A call that changes something: its failure counts even if the handler does not wait for it. */
  const change = <T>(work: () => Promise<T>): Promise<T> => {
    const promise = ObservedPromise.run(async () => {
      abort.throwIfAborted()
      if (over) throw new Error('The attempt is over: its context takes nothing any more.')
      return work()
    })
    undone.add(promise)
    promise.whenFulfilled(() => undone.delete(promise))
    return promise
  }

  const ctx: JobContext = {
    id: formatJobId(job.id),
    treeId: formatJobId(job.treeId),
    parentId: job.parentId === null ? null : formatJobId(job.parentId),
    key: job.key,
    payload,
    metadata: job.metadata,
    phase: job.phase,
    wave: job.wave,
    attempt: job.attempt,
    retryCount: job.retryCount,
    lastAttempt: job.retryCount >= job.maxRetries,
    get signal() {
      return abort.signal
    },
    get saved() {
      return saved
    },
    save: (checkpoint: unknown) =>
      change(async () => {
        const json = toJsonText(checkpoint, ['checkpoint'])
        if ('issue' in json) throw new ValidationError([json.issue])
        const parsed = await parseSaved(JSON.parse(json.text))
        try {
          await attempt(() => saveCheckpoint(db, job, json.text))
        } catch (error) {
          if (error instanceof LeaseLostError) onStale()
          throw error
        }
        saved = parsed
      }),
    spawn: (children: readonly NewJob[]) =>
      change(async () => {
        if (!Array.isArray(children)) {
          throw ValidationError.of(
            'children',
            'must be an array of jobs; anything else that can be iterated is not taken',
          )
        }
        const prepared = await prepareJobs(children, known)
        const earlier = job.childCount === 0 ? new Map() : await attempt(() => existingChildren(db, job.id, prepared))
        spawned ??= new SpawnedChildren()
        const added = spawned
        return prepared.map((child) => formatJobId(earlier.get(child) ?? added.add(child).id))
      }),
    children: (...args: unknown[]) => {
      const [first, second] = args as [AnyContract | ChildrenOptions | undefined, ChildrenOptions | undefined]
      const contract = first !== undefined && 'type' in first ? first : undefined
      const options = contract ? second : (first as ChildrenOptions | undefined)
      // biome-ignore lint/suspicious/noExplicitAny: the overloads of ChildrenReader say what comes out
      return readChildren(source, contract, options) as AsyncIterableIterator<any>
    },
    childCounts: ({ wave } = {}) => countChildren(source, wave),
    progress(current, total, message) {
      if (over) return
      progress ??= newProgress()
      progress.report(current, total, message)
    },
    get log() {
      log ??= services.logger.child({ job: ctx.id, type: job.type, phase: job.phase, attempt: job.attempt })
      return log
    },
  }

  return {
    ctx,
    spawned: () => spawned?.list ?? null,
    async finish() {
      for (const promise of undone) {
        const failure = await promise.neglectedFailure()
        if (failure) throw failure.error
      }
      over = true
      await progress?.flush()
    },
    close() {
      over = true
      progress?.close()
    },
  }
}
