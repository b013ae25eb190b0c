import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { AbortCode } from '../context/context.ts'
import type { AttemptServices } from '../context/create-context.ts'
import type { AnyDefinition } from '../definition/define-job.ts'
import { retryOrFail } from '../failure/retry.ts'
import { monotonicMs } from '../lease/clock.ts'
import { LazyAbort } from './abort.ts'
import { type AttemptEnd, DROPPED, PUT_BACK } from './attempt-end.ts'
import { attemptLimit } from './attempt-limit.ts'
import { LongTimer } from './long-timer.ts'
import { runHandler } from './run-handler.ts'

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
    const abort = this.#abortion
    const isOver = () => this.#over
    void runHandler({ services, job, definition, abort, isOver, onStale }).then(this.#finish)
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
}
