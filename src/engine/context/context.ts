import type { Logger } from 'pino'
import type { JobContract } from '../definition/contract.ts'
import type { SchemaInput, SchemaOutput, SchemaSlot } from '../definition/standard-schema.ts'
import type { Json, NewJob } from '../job.ts'
import type { JobStream, StreamedChildren } from '../spawn-stream.ts'
import type { Phase } from '../states.ts'
import type { ChildrenReader } from './children.ts'

/** Why an attempt's signal was aborted: the `code` of `ctx.signal.reason`, which is an {@link AttemptAbortedError}. */
export type AbortCode = 'CANCELLED' | 'TIMEOUT' | 'LEASE_LOST' | 'SHUTDOWN'

/** What a handler gets: its job as it was claimed, and what it may do. Ids are global: `JB_…`. */
export interface JobContext<P extends SchemaSlot = SchemaSlot, S extends SchemaSlot = SchemaSlot>
  extends ChildrenReader {
  readonly id: string
  /** The root of the tree; the job itself if it is the root. */
  readonly treeId: string
  readonly parentId: string | null
  readonly key: string | null
  /** What the payload's schema gave. */
  readonly payload: SchemaOutput<P, Json>
  readonly metadata: Json
  readonly phase: Phase
  /** How many child sets this job has been woken for: 0 in ingest. */
  readonly wave: number
  /** Claims over the whole life of the job: 1 for the first. */
  readonly attempt: number
  /** Retries spent so far in this phase. */
  readonly retryCount: number
  /** Whether a failure now would be final. */
  readonly lastAttempt: boolean
  /** What was last saved, by this attempt or an earlier one of either phase; null if nothing was. */
  readonly saved: SchemaOutput<S, Json> | null
  /**
   * Saves a checkpoint, kept over retries and phases.
   *
   * @throws {LeaseLostError} when this attempt no longer holds the job.
   * @throws {ValidationError} when it is no JSON, is too large, or its schema refuses it.
   */
  save(checkpoint: SchemaInput<S, unknown>): Promise<void>
  /**
   * Aborted when the attempt is to end: its job was cancelled or deleted, its time is up, it no longer holds the job, or
   * the process shuts down. What the handler does after that is ignored.
   */
  readonly signal: AbortSignal
  /**
   * Adds children. They are written together with the end of the phase, all or none; then the job waits for them and is
   * woken in AGGREGATE, at once if there are none. May be called several times in a phase.
   *
   * @returns their ids. A child whose key is taken by an earlier child is that child.
   * @throws {ValidationError} with every child that is wrong; none of this call is added.
   */
  spawn(children: readonly NewJob[]): Promise<string[]>
  /**
   * Adds children from a stream (a generator, an async generator, anything that can be iterated and is no array), for
   * fan-outs too large to hold. They are written while the phase runs, in chunks of 500, and may run at once; the next
   * one is asked for when the chunk before is written, so memory stays bounded. What is written stays if the phase fails
   * and is retried, so each child needs a key: of the keys that are there already nothing is added, and a child that was
   * cancelled with its parent is reopened.
   *
   * @returns how many are new and how many were there.
   * @throws {ValidationError} for the first child that is wrong or has no key; nothing of its chunk is written.
   * @throws {ParentGoneError} the job was cancelled or deleted meanwhile.
   * @throws {LeaseLostError} this attempt no longer holds the job.
   */
  spawn(children: JobStream): Promise<StreamedChildren>
  /**
   * Tells how far the job is. At most one write a second; the first and the last are always written. A total or message
   * that is left out is none.
   */
  progress(current: number, total?: number, message?: string): void
  /** Knows the job. */
  readonly log: Logger
}

/**
 * The context of a contract's handlers, for functions that they call.
 *
 * @example
 * async function listFolder(ctx: ContextOf<typeof digestFolder>) { … }
 */
export type ContextOf<C> = C extends JobContract<infer P, infer _R, infer S> ? JobContext<P, S> : JobContext
