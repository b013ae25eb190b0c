import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { Database } from '../../db/database.ts'
import { claimJobs, WorkerDeadError } from '../claim/claim.ts'
import { ClaimLimits } from '../claim/claim-limits.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import { KeyAdoption } from '../claim/key-adoption.ts'
import { DatabaseStore } from '../context/attempt-store.ts'
import type { JobRegistry } from '../definition/job-registry.ts'
import { formatId } from '../ids.ts'
import type { Outcome } from '../job.ts'
import type { BeatReport } from '../lease/messages.ts'
import { logRefusedEnds, type SettleReport, settle } from '../settle/settle.ts'
import type { SettleItem, SettleJob } from '../settle/settle-batch.ts'
import { Attempt } from './attempt.ts'
import type { AttemptEnd } from './attempt-end.ts'
import { Bell } from './bell.ts'
import { ClaimWatch } from './claim-watch.ts'
import { DueTimer } from './due-timer.ts'
import { insist } from './insist.ts'
import { logFailure } from './log-failure.ts'
import { isOutage, type OutageGuard } from './outage.ts'
import { Settler } from './settler.ts'
import { within } from './within.ts'

/** Most jobs of one claim. */
const MAX_CLAIM = 1000
/** How long a claim waits for more slots to come free, while less than half are and some are about to. */
const GATHER_MS = 5
/** After a claim that brought something, but less than it could: others may have held the rest for a moment. */
const SOON_MS = 50
/** Shortest time between two claims that find nothing, however often the doorbell rings. */
const EMPTY_PAUSE_MS = 5
/** How long a claim may take when the worker stops. */
const CLAIM_MS = 5000
/** How long handlers have to heed the signal at shutdown; and how long putting back jobs may take. */
const HEED_MS = 1000
const PUT_BACK_MS = 5000

/** What a worker needs. */
export interface WorkerOptions {
  readonly db: Database
  readonly jobs: JobRegistry
  /** Null: all. */
  readonly queues: readonly string[] | null
  readonly concurrency: number
  readonly pollMs: number
  readonly logger: Logger
  readonly outages: OutageGuard
  /** Something was committed that others may wait for. */
  onCommitted(): void
  /** A claim was refused: this incarnation is over. */
  onDead(workerId: string): void
  /** The loop cannot go on. */
  onFatal(error: unknown): void
}

/**
 * The run loop: claims as many jobs as there are free slots, runs their handlers, and settles what they came to in
 * batches. A slot is free again when its attempt's end has been committed.
 */
export class Worker {
  readonly #options: WorkerOptions
  readonly #attempts = new Map<string, Attempt>()
  readonly #settler: Settler
  readonly #watch: ClaimWatch
  readonly #due: DueTimer
  /** Null: no type here has a concurrency limit. */
  readonly #limits: ClaimLimits | null
  readonly #adoption: KeyAdoption | null
  /** Rung when there may be work; when a slot came free. */
  readonly #work = new Bell()
  readonly #freed = new Bell()
  readonly #stop = new AbortController()
  readonly #giveUp = new AbortController()
  #workerId: string | null = null
  #claiming: Promise<unknown> = Promise.resolve()
  #loop: Promise<void> | undefined

  constructor(options: WorkerOptions) {
    this.#options = options
    this.#settler = new Settler((items) => this.#settleBatch(items))
    this.#due = new DueTimer(() => this.#work.ring())
    const limited = options.jobs.limits.size > 0
    this.#limits = limited ? new ClaimLimits(options.jobs.limits) : null
    this.#adoption = limited ? new KeyAdoption(options) : null
    this.#watch = new ClaimWatch({
      db: options.db,
      logger: options.logger,
      attempts: this.#attempts,
      claimsArrived: () => this.#claiming.then(() => {}),
      putBack: (jobs) => this.#putBack(jobs),
    })
  }

  /** Jobs held: running, or ended and not settled yet. */
  get active(): number {
    return this.#attempts.size
  }

  /** Begins to claim under this incarnation, or goes on under a new one. Null: claims nothing until there is another. */
  incarnate(workerId: string | null): void {
    this.#workerId = workerId
    this.#work.ring()
    this.#loop ??= this.#run().catch((error) => this.#options.onFatal(error))
  }

  /** There may be work: looks at once. */
  nudge(): void {
    this.#work.ring()
  }

  /** There will be work in `delayMs`. */
  nudgeIn(delayMs: number): void {
    if (delayMs <= 0) this.#work.ring()
    else this.#due.add(delayMs)
  }

  /** Something changed in the database: some attempts may have lost their jobs. */
  look(): void {
    this.#watch.look()
  }

  /** What a heartbeat saw of this worker. */
  beat(report: BeatReport): void {
    if (this.#workerId !== null) this.#watch.compare(this.#workerId, report)
  }

  /** This incarnation is over: handlers are told, and their results are nobody's. Results that are in are still settled. */
  abandonAll(): void {
    for (const attempt of this.#attempts.values()) attempt.abandon('LEASE_LOST')
  }

  /**
   * Stops: claims no more, lets handlers end for `graceMs`, asks the others to, and puts their jobs back without spending
   * a retry. That is the last thing it does to jobs.
   */
  async stop(graceMs: number): Promise<void> {
    this.#stop.abort()
    this.#work.ring()
    this.#freed.ring()
    // A claim under way is waited for; one that hangs on a dead connection is not: what it brings is put back later.
    await within(Promise.resolve(this.#loop), CLAIM_MS)
    await this.#drained(graceMs)
    for (const attempt of this.#attempts.values()) attempt.askToEnd()
    await this.#drained(HEED_MS)
    for (const attempt of this.#attempts.values()) attempt.putBack()
    if (!(await this.#drained(PUT_BACK_MS))) {
      this.#options.logger.error(`Jobs left to others, for they could not be put back: ${this.#attempts.size}`)
    }
    this.#giveUp.abort()
    this.#watch.stop()
    this.#due.stop()
  }

  async #run(): Promise<void> {
    const { pollMs } = this.#options
    const { signal } = this.#stop
    let news = true
    while (!signal.aborted) {
      await this.#slots()
      if (signal.aborted) return
      // What rings from here on is not seen by this claim for sure.
      news = this.#work.reset() || news
      if (news) this.#limits?.news()
      if (news) this.#adoption?.news()
      news = false
      const limit = Math.min(this.#options.concurrency - this.#attempts.size, MAX_CLAIM)
      const claimed = await this.#claim(limit)
      // Where there are more keys than one claim looks at, the jobs of the next ones wait for nothing either.
      if (claimed === limit || (claimed > 0 && this.#limits?.unfinished)) continue
      const endedAt = performance.now()
      const soon = claimed > 0 || this.#limits?.unfinished || this.#adoption?.unfinished
      news = await this.#work.wait(soon ? SOON_MS : pollMs * (0.8 + 0.4 * Math.random()))
      const pause = endedAt + EMPTY_PAUSE_MS - performance.now()
      if (claimed === 0 && pause > 0 && !signal.aborted) await sleep(pause)
    }
  }

  /** Waits for a free slot, and a little for more of them, so that claims stay large while jobs are short. */
  async #slots(): Promise<void> {
    const { concurrency } = this.#options
    const free = () => concurrency - this.#attempts.size
    while (free() <= 0 && !this.#stop.signal.aborted) await this.#freed.wait(60_000)
    const until = performance.now() + GATHER_MS
    while (free() < concurrency / 2 && this.#settler.pending > 0 && !this.#stop.signal.aborted) {
      const left = until - performance.now()
      if (left <= 0) return
      await this.#freed.wait(left)
    }
  }

  /** Claims up to `limit` jobs and begins them; returns how many. */
  async #claim(limit: number): Promise<number> {
    const { db, jobs, queues, outages, onDead } = this.#options
    const workerId = this.#workerId
    if (workerId === null) return 0
    const request = { workerId, types: jobs.types, queues, limit, ...(this.#limits && { limits: this.#limits }) }
    const claim = outages
      .persist(async () => {
        await this.#adoption?.look()
        return await claimJobs(db, request)
      }, this.#stop.signal)
      .then((claimed) => {
        for (const job of claimed) this.#begin(workerId, job)
        return claimed.length
      })
    this.#claiming = claim.catch(() => {})
    try {
      return await claim
    } catch (error) {
      if (error instanceof WorkerDeadError) onDead(workerId)
      else if (!(isOutage(error) && this.#stop.signal.aborted)) throw error
      return 0
    }
  }

  #begin(workerId: string, job: ClaimedJob): void {
    const { db, jobs, outages, logger, onCommitted } = this.#options
    const services = {
      known: jobs,
      outages,
      logger,
      store: new DatabaseStore(db, job, formatId('WK', workerId)),
      onWritten: onCommitted,
      onSpawned: () => {
        onCommitted()
        this.#work.ring()
      },
    }
    const attempt = new Attempt(services, job, jobs.definition(job.type)!, () => this.#watch.look())
    this.#attempts.set(job.claimToken, attempt)
    void attempt.end.then((end) => this.#end(attempt, end))
    if (this.#workerId !== workerId) attempt.abandon('LEASE_LOST')
    else if (this.#stop.signal.aborted) attempt.putBack()
  }

  async #end({ job }: Attempt, { outcome, failure }: AttemptEnd): Promise<void> {
    const { logger, onFatal } = this.#options
    try {
      if (outcome === null) return
      const settle = (end: Outcome) => this.#settler.settle({ job, outcome: end })
      const fate = await insist(settle, outcome, this.#stop.signal)
      if (fate === 'settled' && failure) logFailure(logger, job, failure)
      if (fate === 'stale')
        logger.info({ job: formatId('JB', job.id) }, 'The job was not held any more: result ignored')
      if (fate === 'refused') logger.error({ job: formatId('JB', job.id) }, 'The database refused what the job brought')
    } catch (error) {
      if (!this.#giveUp.signal.aborted) onFatal(error)
    } finally {
      this.#attempts.delete(job.claimToken)
      this.#freed.ring()
      // Whatever the attempt came to, a slot of its limit is free.
      if (this.#limits?.has(job.type)) this.#work.ring()
    }
  }

  #putBack(jobs: readonly SettleJob[]): void {
    for (const job of jobs) {
      const outcome = { kind: 'requeue', delayMs: 0, reason: 'claim lost on its way to the worker' } as const
      this.#settler.settle({ job, outcome }).catch((error) => {
        if (!this.#giveUp.signal.aborted) this.#options.onFatal(error)
      })
    }
  }

  async #settleBatch(items: readonly SettleItem[]): Promise<SettleReport> {
    const { db, logger, outages, onCommitted } = this.#options
    const actor = formatId('WK', this.#workerId ?? 'none')
    const report = await outages.persist(() => settle(db, items, { actor }), this.#giveUp.signal)
    logRefusedEnds(logger, report)
    onCommitted()
    // Parents that are due, and new children: work that is there at once.
    if (report.woken.length > 0 || items.some(({ outcome }) => outcome.kind === 'waiting')) this.#work.ring()
    for (const { outcome } of items) {
      if (outcome.kind === 'retry' || outcome.kind === 'requeue') this.nudgeIn(outcome.delayMs)
    }
    return report
  }

  /** Waits until no job is held, at most `ms`; whether none is. */
  async #drained(ms: number): Promise<boolean> {
    const until = performance.now() + ms
    while (this.#attempts.size > 0) {
      const left = until - performance.now()
      if (left <= 0) return false
      await this.#freed.wait(Math.min(left, 60_000))
    }
    return true
  }
}
