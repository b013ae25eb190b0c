import type { Logger } from 'pino'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { AnyContract } from '../definition/contract.ts'
import type { AnyDefinition } from '../definition/define-job.ts'
import { parseJsonOrThrow } from '../definition/standard-schema.ts'
import { LeaseLostError, ParentGoneError, ValidationError } from '../errors.ts'
import { formatJobId } from '../ids.ts'
import type { Json, NewJob } from '../job.ts'
import { toJsonText } from '../json.ts'
import { type KnownTypes, type PreparedJob, prepareJobs } from '../prepare.ts'
import { isJobStream, type JobStream, type StreamedChildren, spawnStream } from '../spawn-stream.ts'
import type { AttemptAbortedError, LazyAbort } from '../worker/abort.ts'
import { ObservedPromise } from '../worker/observed-promise.ts'
import type { OutageGuard } from '../worker/outage.ts'
import type { AttemptStore } from './attempt-store.ts'
import { type ChildrenOptions, type ChildrenSource, countChildren, readChildren } from './children.ts'
import type { JobContext } from './context.ts'
import type { ProgressSink } from './progress.ts'
import { SpawnedChildren } from './spawned-children.ts'

/** What an attempt needs of its worker. */
export interface AttemptServices {
  readonly store: AttemptStore
  readonly known: KnownTypes
  readonly outages: OutageGuard
  readonly logger: Logger
  /** An event was written besides those of settling. */
  onWritten(): void
  /** Children were written before the phase has ended. */
  onSpawned(): void
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
  const { store, known, outages } = services
  const payload = await parseJsonOrThrow(definition.payload, job.payload, 'payload')
  const parseSaved = (saved: Json) => parseJsonOrThrow(definition.checkpoint, saved, 'checkpoint')
  let saved = job.checkpoint === null ? null : await parseSaved(job.checkpoint)
  let spawned: SpawnedChildren | null = null
  let streamed = false
  let over = false
  let log: Logger | undefined
  const undone = new Set<ObservedPromise<unknown>>()

  const attempt = async <T>(query: () => Promise<T>): Promise<T> => {
    abort.throwIfAborted()
    return outages.persist(query, abort.signal)
  }
  const source: ChildrenSource = { store, spawnWave: job.spawnWave, attempt }
  let progress: ProgressSink | undefined
  const newProgress = () =>
    store.progress({
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

  /** Children that are written with the end of the phase. */
  const spawnList = async (children: readonly NewJob[]): Promise<string[]> => {
    const prepared = await prepareJobs(children, known)
    const mayExist = job.childCount > 0 || streamed
    const earlier = mayExist ? await attempt(() => store.existingChildren(prepared)) : new Map<PreparedJob, string>()
    spawned ??= new SpawnedChildren()
    const added = spawned
    return prepared.map((child) => formatJobId(earlier.get(child) ?? added.add(child).id))
  }
  /** Children that are written as they come. */
  const spawnAll = async (children: JobStream): Promise<StreamedChildren> => {
    if (!isJobStream(children)) throw ValidationError.of('children', 'must be an array of jobs, or a stream of them')
    spawned ??= new SpawnedChildren()
    streamed = true
    const check = () => throwIfGone(abort, job.id)
    try {
      return await spawnStream(children, {
        known,
        check,
        write: async (chunk) => {
          const written = await outages.persist(() => store.spawnChunk(chunk), abort.signal)
          services.onSpawned()
          return written
        },
      })
    } catch (error) {
      if (isLoss(error, job.id)) onStale()
      // An outage that the attempt's end cut short is not what stopped it.
      else check()
      throw error
    }
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
          await attempt(() => store.saveCheckpoint(json.text))
        } catch (error) {
          if (error instanceof LeaseLostError) onStale()
          throw error
        }
        saved = parsed
      }),
    // biome-ignore lint/suspicious/noExplicitAny: the overloads of JobContext say what comes out
    spawn: (children: readonly NewJob[] | JobStream): Promise<any> =>
      change<unknown>(() => (Array.isArray(children) ? spawnList(children) : spawnAll(children as JobStream))),
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

/** As the signal, and for what a stream of children is stopped by, its own errors. */
function throwIfGone(abort: LazyAbort, jobId: string): void {
  try {
    abort.throwIfAborted()
  } catch (error) {
    const { code } = error as AttemptAbortedError
    if (code === 'CANCELLED') throw new ParentGoneError(jobId, 'cancelled or deleted')
    if (code === 'LEASE_LOST') throw new LeaseLostError(jobId)
    throw error
  }
}

function isLoss(error: unknown, jobId: string): boolean {
  if (error instanceof ParentGoneError) return error.parentId === jobId
  return error instanceof LeaseLostError && error.jobId === jobId
}
