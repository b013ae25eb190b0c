import type { Registry } from 'prom-client'
import type { Database } from '../db/database.ts'
import type { Assignee, AssigneeStatus } from './assignee.ts'
import type { EngineBulk } from './bulk/engine-bulk.ts'
import type { ResultOf } from './definition/contract.ts'
import type { JobRegistry } from './definition/job-registry.ts'
import type { EngineLists } from './engine-lists.ts'
import type { Explanation } from './explain/explanation.ts'
import type { Doorbell } from './feed/doorbell.ts'
import type { Feed } from './feed/hub.ts'
import type { Enqueued, Job, NewJob } from './job.ts'
import type { JobHandle } from './job-handle.ts'
import type { SweepReport } from './orphan-sweep.ts'
import type { Page, PageArgs } from './reads/page.ts'
import type { WakeReceipt } from './reads/receipts.ts'
import type { Stats } from './stats/stats.ts'
import type { WatchStats } from './stats/watch-stats.ts'
import type { UserTransaction } from './user-transaction.ts'
import type { JobEnd } from './wait-for.ts'
import type { WatchTree } from './watch/watch-tree.ts'

/** Who does it, and why, for the audit trail. */
export interface SteerOptions {
  reason?: string
  /** Default: the engine's own. */
  actor?: string
}

/** One job, or a whole subtree. */
export interface SubtreeOptions extends SteerOptions {
  /** Its descendants too, as far as they are in a state for it. */
  descendants?: boolean
}

/** Who does it, for the audit trail. */
export interface ActorOptions {
  /** Default: the engine's own. */
  actor?: string
}

/** How jobs are enqueued. */
export interface EnqueueOptions extends ActorOptions {
  /**
   * A transaction that you have open on Coppice's database: a client of `pg` on which BEGIN was run, or a Kysely
   * transaction. The jobs are written in it, so they are there when it commits and never were if it does not; no worker
   * sees them before. Coppice sets nothing in it and runs nothing again: a conflict with SQLSTATE 40001 or 40P01 is
   * yours to retry, with the whole transaction. Workers find the jobs at their next poll; call {@link Engine.ring} after
   * the commit, and they look at once.
   */
  transaction?: UserTransaction | undefined
}

/** Events as an async iterable, by calling it; pages of them and cursors by its methods. */
export type EngineFeed = Feed['subscribe'] & Pick<Feed, 'subscribe' | 'read' | 'cursorAt' | 'stats'>

/**
 * One process's way into an installation: it enqueues, steers and watches jobs, and once started runs those of its types.
 * Ids are taken as `JB_<uuid>` or bare, and given bare. Every verb throws {@link UnavailableError} when the database
 * cannot be reached: what was asked may be done or not.
 */
export interface Engine extends EngineLists, EngineBulk {
  /**
   * Brings the schema up to date, and begins to run jobs, to maintain and to listen. Again: does nothing.
   *
   * @throws {UnavailableError} when the database cannot be reached; the errors of migrations when its schema does not fit.
   *   Then it may be started again.
   */
  start(): Promise<void>
  /**
   * Claims no more, lets handlers end for the grace time, then aborts them and puts their jobs back; lets go of the
   * database. For good. Without a start it only lets go.
   *
   * @param options.grace in place of the engine's own, in ms.
   */
  stop(options?: { grace?: number }): Promise<void>
  /**
   * Enqueues a job, with its children if it has any, in one transaction: its own, or the one given.
   *
   * @example
   * await client.query('begin')
   * await client.query('insert into orders (id) values ($1)', [orderId])
   * await engine.enqueue(ship.with({ orderId }), { transaction: client })
   * await client.query('commit')
   * engine.ring()
   * @throws {ValidationError} with everything that is wrong, such as a transaction that is not open; nothing was written.
   */
  enqueue<J extends NewJob>(job: J, options?: EnqueueOptions): Promise<JobHandle<ResultOf<J>>>
  /** Enqueues many jobs with their trees in one transaction: all or none. Paths of issues begin with the position. */
  enqueueMany<J extends NewJob>(jobs: readonly J[], options?: EnqueueOptions): Promise<JobHandle<ResultOf<J>>[]>
  /** Tells all processes to look for what is new: for after the commit of a transaction that jobs were enqueued in. */
  ring(): void
  /**
   * Waits until a job has ended.
   *
   * @throws {WaitTimeoutError} it did not within `timeoutMs` (default: waits for ever)
   * @throws {NotFoundError} there is no such job, or it was deleted meanwhile
   * @throws {ValidationError} its result is not what the contract says
   */
  waitFor<Result>(job: JobHandle<Result>, options?: { timeoutMs?: number }): Promise<JobEnd<Result>>
  waitFor(id: string, options?: { timeoutMs?: number }): Promise<JobEnd>
  /** A job as it is now; null if there is none. */
  job(id: string): Promise<Job | null>
  /**
   * Why a job does not move, or what it does instead: the decisive reason first, never none. A waiting parent's goes down
   * to the leaves that hold it up. Limits of types are known where the types are: ask an engine that was given them.
   *
   * @throws {NotFoundError}
   */
  explain(id: string): Promise<Explanation[]>
  /**
   * Parents that the reconciler would wake now, or withholds, the longest wait first: its dry run. Pages as in the API:
   * `first` and `after`, or `last` and `before`; 20 jobs unless told otherwise, at most 100.
   */
  stuckParents(page?: PageArgs): Promise<Page<Job>>
  /** Active jobs that the orphan sweep would cancel now: its dry run. Pages as of `stuckParents`. */
  orphans(page?: PageArgs): Promise<Page<Job>>
  /**
   * Adds children to a parent that waits, or that runs its ingest.
   *
   * @throws {NotFoundError}
   * @throws {ParentGoneError} it has ended
   * @throws {InvalidStateError} it can take no children now
   */
  spawnChildren(
    parentId: string,
    children: readonly NewJob[],
    options?: ActorOptions,
  ): Promise<{ children: Enqueued[] }>
  /**
   * Deletes a job and cancels its active descendants at every depth; those that ended stay.
   *
   * @throws {NotFoundError}
   */
  deleteJob(id: string, options?: SteerOptions): Promise<{ job: Job; cancelledDescendants: number }>
  /**
   * Cancels a job and, unless its orphan policy is `keep`, its active descendants. A running handler's signal is aborted,
   * and its result ignored.
   *
   * @throws {NotFoundError}
   * @throws {InvalidStateError} it has ended
   */
  cancelJob(id: string, options?: SteerOptions): Promise<{ job: Job; cancelledDescendants: number }>
  /** Sets a job aside; a running one when its attempt ends in a retry or a wait. Throws as `cancelJob`. */
  pauseJob(id: string, options?: SubtreeOptions): Promise<{ job: Job }>
  /** Lets a paused job go on. Throws as `cancelJob`, when it is not paused. */
  resumeJob(id: string, options?: SubtreeOptions): Promise<{ job: Job }>
  /**
   * Runs a failed or cancelled job again, in the phase it ended in; one that ended while it waited waits again. Children
   * that were cancelled with it are reopened.
   *
   * @param options.descendants reopen those that failed, too, at every depth.
   * @param options.rerun run a completed job again.
   * @param options.children `none`: leaves those that were cancelled with it as they are, and aggregates what there is. If
   *   a child is open still, such as one that it keeps, the job waits for that.
   * @throws {NotFoundError}
   * @throws {InvalidStateError} it is active, archived, or completed without `rerun`
   * @throws {ParentGoneError} its parent has ended or was deleted: retry that
   */
  retryJob(
    id: string,
    options?: SubtreeOptions & { rerun?: boolean; children?: 'reopen' | 'none' },
  ): Promise<{ job: Job; reopenedDescendants: number }>
  /**
   * Wakes a parent that waits although all its children have settled.
   *
   * @param options.force wake it with what there is, if children are open; or let a parent that failed aggregate again.
   * @throws {NotFoundError}
   * @throws {ChildrenOpenError} children are open, and it is not forced
   * @throws {AlreadyDeliveredError} it was woken and is on its way, also when forced
   * @throws {AssigneeNotActiveError} also when forced
   * @throws {InvalidStateError} it does not wait (nor has failed, with `force`), is archived, or its own parent has ended
   */
  rewakeParent(id: string, options?: SteerOptions & { force?: boolean }): Promise<{ job: Job; receipt: WakeReceipt }>
  /** Takes a job out of lists and out of its parent's child set; an active one is cancelled first. */
  archiveJob(id: string, options?: SteerOptions): Promise<{ job: Job }>
  /** Takes that back. Throws as `cancelJob`, when it is not archived. */
  unarchiveJob(id: string, options?: SteerOptions): Promise<{ job: Job }>
  /**
   * Cancels every active job whose parent has ended without keeping it, or is gone, with its descendants: the periodic
   * sweep does so too, bit by bit.
   */
  sweepOrphans(options?: ActorOptions): Promise<SweepReport>
  /** Makes an assignee, or changes its status; activation delivers the wakes that were withheld, and names them. */
  setAssignee(
    id: string,
    status: AssigneeStatus,
    options?: ActorOptions,
  ): Promise<{ assignee: Assignee; woken: string[] }>
  /** What happens, from the event log. */
  readonly feed: EngineFeed
  /**
   * The tree that a job belongs to, as an async iterable: as it is, in one snapshot (of more than 10,000 jobs in several,
   * none older than the first), then exactly what changes. The first update comes at once. Changes come together for
   * 25 ms, and an empty update every 30 s. Goes on from `after` without loss; when that cursor has expired, a new
   * snapshot begins. Leave the loop, or call `return()`, to end it. Needs an engine that has been started.
   *
   * @example
   * const jobs = new Map<string, Job>()
   * for await (const update of engine.watchTree(id)) {
   *   if (update.reset) jobs.clear()
   *   for (const job of update.jobs) jobs.set(job.id, job)
   *   for (const id of update.removed) jobs.delete(id)
   *   if (update.caughtUp && update.counts.open === 0) break
   * }
   * @throws {InvalidCursorError} {@link ValidationError} at once, when `after` is no cursor or `id` no id.
   * @throws {NotFoundError} from the iterable: there is no trace of such a job.
   */
  readonly watchTree: WatchTree
  /** The installation in numbers. */
  stats(): Promise<Stats>
  /**
   * The same as an async iterable: now, then again and again. Who is slow misses some. All who watch at one interval
   * share one reading.
   *
   * @throws {ValidationError} at once, for an interval below 500 ms or above a day.
   */
  readonly watchStats: WatchStats
  /**
   * Calls back when the engine cannot go on running jobs: it has stopped by then, and the process had best end with an
   * error. Without a listener the error is thrown where nobody catches it, so that the process does end.
   *
   * @returns ends the listening.
   */
  on(event: 'fatal', listener: (error: unknown) => void): () => void
  readonly database: Database
  readonly doorbell: Doorbell
  /** The types known here. */
  readonly jobs: JobRegistry
  /** This process's figures, for a scraper in Prometheus form: `await engine.metrics.metrics()`. */
  readonly metrics: Registry
  /** Whether it has been started and has not begun to stop. */
  readonly running: boolean
}
