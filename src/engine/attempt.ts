import { LazyAbort } from './abort.ts'
import { attemptLimit } from './attempt-limit.ts'
import type { ClaimedJob } from './claim.ts'
import type { AbortCode } from './context.ts'
import { type AttemptServices, createContext } from './create-context.ts'
import type { AnyDefinition } from './define-job.ts'
import { LeaseLostError } from './errors.ts'
import { handlerFor } from './handler-for.ts'
import type { Outcome } from './job.ts'
import { monotonicMs } from './lease/clock.ts'
import { LongTimer } from './long-timer.ts'
import { resultOf } from './result.ts'
import { type FailedAttempt, failedAttempt, retryOrFail } from './retry.ts'

/** How an attempt ended. `outcome` null: its job is not its own any more, nothing is to be written. */
export interface AttemptEnd {
  outcome: Outcome | null
  /** For the log, if it threw or its time ran out. */
  failure?: FailedAttempt
}

const DROPPED: AttemptEnd = { outcome: null }
const PUT_BACK: AttemptEnd = { outcome: { kind: 'requeue', delayMs: 0, reason: 'shutdown' } }

/** One attempt at a claimed job, from its claim until its outcome is known. What its handler does after that is ignored. */
export class Attempt {
  readonly job: ClaimedJob
  /** On the clock of `monotonicMs()`; the claim had committed by then. */
  readonly startedAt = monotonicMs()
  /** Never rejects. */
  readonly end: Promise<AttemptEnd>
  readonly #abortion = new LazyAbort()
  readonly #definition: AnyDefinition
  #finish: (end: AttemptEnd) => void = () => {}
  #timer: LongTimer | undefined
  #over = false

  /** @param onStale a write of the handler's was refused: find out what became of the job. */
  constructor(services: AttemptServices, job: ClaimedJob, definition: AnyDefinition, onStale: () => void) {
    this.job = job
    this.#definition = definition
    this.end = new Promise((resolve) => {
      this.#finish = (end) => {
        this.#over = true
        this.#timer?.clear()
        resolve(end)
      }
    })
    const limit = attemptLimit(job, definition)
    if (limit !== null) this.#timer = new LongTimer(limit, () => this.#timeOut(limit))
    void this.#run(services, onStale).then(this.#finish)
  }

  /** The outcome is known: nothing below changes it any more. */
  get over(): boolean {
    return this.#over
  }

  /** The job is not this attempt's any more. Its slot is free at once, whether or not the handler heeds the signal. */
  abandon(code: Extract<AbortCode, 'CANCELLED' | 'LEASE_LOST'>): void {
    this.#abort(code, DROPPED)
  }

  /** Asks the handler to end: unless it comes to a result all the same, the job is put back. */
  askToEnd(): void {
    if (!this.#over) this.#abortion.abort('SHUTDOWN')
  }

  /** Puts the job back, without spending a retry. */
  putBack(): void {
    this.#abort('SHUTDOWN', PUT_BACK)
  }

  #timeOut(limit: number): void {
    const error = { code: 'TIMEOUT', message: `The attempt took longer than ${limit} ms.` } as const
    const failure = retryOrFail(this.job, error, { verdict: 'retry' }, this.#definition.settings.backoff)
    this.#abort('TIMEOUT', { outcome: failure.outcome, failure })
  }

  #abort(code: AbortCode, end: AttemptEnd): void {
    if (this.#over) return
    this.#finish(end)
    this.#abortion.abort(code)
  }

  async #run(services: AttemptServices, onStale: () => void): Promise<AttemptEnd> {
    const { job } = this
    const abort = this.#abortion
    const definition = this.#definition
    try {
      const handler = handlerFor(job, definition)
      if (handler === null) return { outcome: { kind: 'completed', result: job.result } }
      const context = await createContext(services, job, definition, abort, onStale)
      try {
        // A job put back at once is not begun.
        abort.throwIfAborted()
        const value = await handler(context.ctx)
        await context.finish()
        const children = context.spawned()
        if (children === null) return { outcome: { kind: 'completed', result: await resultOf(definition, value) } }
        // What comes before an aggregate is no result: that is for the aggregate to say.
        if (definition.handlers.aggregate) return { outcome: { kind: 'waiting', children } }
        return { outcome: { kind: 'waiting', children, result: await resultOf(definition, value) } }
      } catch (error) {
        if (!this.#over) await context.finish().catch(() => {})
        throw error
      } finally {
        context.close()
      }
    } catch (error) {
      if (error instanceof LeaseLostError && error.jobId === job.id) return DROPPED
      if (abort.aborted) return PUT_BACK
      const failure = failedAttempt(job, error, definition.settings)
      return { outcome: failure.outcome, failure }
    }
  }
}
