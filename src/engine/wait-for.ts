import type { Database } from '../db/database.ts'
import { statement } from '../db/statement.ts'
import { NotFoundError, UnavailableError, WaitTimeoutError } from './errors.ts'
import { formatJobId } from './ids.ts'
import type { CancelCode, FailureCode, Json } from './job.ts'
import { TERMINAL_SQL, type TerminalState } from './states.ts'
import { LongTimer } from './worker/long-timer.ts'
import { isOutage } from './worker/outage.ts'

/** How a job ended. */
export type JobEnd<Result = Json> =
  | { id: string; state: 'completed'; result: Result }
  | { id: string; state: 'failed'; error: string; errorCode: FailureCode }
  | { id: string; state: 'cancelled'; cancelCode: CancelCode; cancelReason: string | null }

/** Shortest time between two looks that a ring sets off, in ms. */
const RING_PAUSE_MS = 20

interface Waiter {
  resolve(end: JobEnd): void
  reject(error: Error): void
}

/** Waits for jobs to end: one statement for all that are waited for, at each ring of the doorbell and at each poll. */
export class Waiters {
  readonly #db: Database
  readonly #pollMs: number
  readonly #byJob = new Map<string, Set<Waiter>>()
  #timer: NodeJS.Timeout | undefined
  #timerAt = Number.POSITIVE_INFINITY
  #looking = false
  #lookedAt = Number.NEGATIVE_INFINITY
  #rungMeanwhile = false
  #stopped = false

  constructor(db: Database, pollMs: number) {
    this.#db = db
    this.#pollMs = pollMs
  }

  /**
   * @throws {WaitTimeoutError} it did not end in time
   * @throws {NotFoundError} there is no such job (any more)
   */
  wait(jobId: string, timeoutMs?: number): Promise<JobEnd> {
    if (this.#stopped) return Promise.reject(stoppedError())
    return new Promise((resolve, reject) => {
      let timer: LongTimer | undefined
      const waiter: Waiter = {
        resolve: (end) => {
          leave()
          resolve(end)
        },
        reject: (error) => {
          leave()
          reject(error)
        },
      }
      const leave = () => {
        timer?.clear()
        const waiters = this.#byJob.get(jobId)
        waiters?.delete(waiter)
        if (waiters?.size === 0) this.#byJob.delete(jobId)
      }
      if (timeoutMs !== undefined) {
        timer = new LongTimer(timeoutMs, () => waiter.reject(new WaitTimeoutError(jobId, timeoutMs)))
      }
      const waiters = this.#byJob.get(jobId) ?? new Set()
      this.#byJob.set(jobId, waiters.add(waiter))
      this.ring()
    })
  }

  /** Something changed: looks soon. */
  ring(): void {
    if (this.#byJob.size === 0) return
    if (this.#looking) this.#rungMeanwhile = true
    else this.#lookIn(this.#lookedAt + RING_PAUSE_MS - performance.now())
  }

  /** Gives up all waiting. */
  stop(): void {
    this.#stopped = true
    clearTimeout(this.#timer)
    this.#rejectAll(stoppedError())
  }

  #lookIn(ms: number): void {
    const at = performance.now() + Math.max(0, ms)
    if (at >= this.#timerAt) return
    clearTimeout(this.#timer)
    this.#timerAt = at
    this.#timer = setTimeout(
      () => {
        this.#timerAt = Number.POSITIVE_INFINITY
        void this.#look()
      },
      Math.max(0, ms),
    )
  }

  async #look(): Promise<void> {
    const ids = [...this.#byJob.keys()]
    if (ids.length === 0) return
    this.#looking = true
    this.#rungMeanwhile = false
    this.#lookedAt = performance.now()
    try {
      const rows = new Map((await this.#db.query(readEnds, [ids])).map((row) => [row.id, row]))
      for (const id of ids) this.#tell(id, rows.get(id))
    } catch (error) {
      // An outage is waited through, as long as each waiter waits.
      if (!isOutage(error)) this.#rejectAll(error as Error)
    }
    this.#looking = false
    if (this.#byJob.size > 0 && !this.#stopped) this.#lookIn(this.#rungMeanwhile ? RING_PAUSE_MS : this.#pollMs)
  }

  #tell(id: string, row: EndRow | undefined): void {
    const waiters = [...(this.#byJob.get(id) ?? [])]
    if (row === undefined) {
      for (const waiter of waiters) waiter.reject(new NotFoundError(formatJobId(id)))
    } else if (row.ended) {
      for (const waiter of waiters) waiter.resolve(endOf(row))
    }
  }

  #rejectAll(error: Error): void {
    for (const waiters of [...this.#byJob.values()]) for (const waiter of [...waiters]) waiter.reject(error)
  }
}

function stoppedError(): UnavailableError {
  return new UnavailableError('The engine was stopped.')
}

interface EndRow {
  id: string
  ended: boolean
  state: TerminalState
  result: Json
  error: string | null
  error_code: FailureCode | null
  cancel_code: CancelCode | null
  cancel_reason: string | null
}

function endOf(row: EndRow): JobEnd {
  const { id, state } = row
  switch (state) {
    case 'completed':
      return { id, state, result: row.result }
    case 'failed':
      return { id, state, error: row.error ?? '', errorCode: row.error_code ?? 'UNKNOWN' }
    case 'cancelled':
      return { id, state, cancelCode: row.cancel_code ?? 'requested', cancelReason: row.cancel_reason }
  }
}

// Results are read of ended jobs only: a rerun job may still have an old one.
const readEnds = statement<EndRow>(
  'wait-for.read-ends',
  (t) => `
  select id, state in (${TERMINAL_SQL}) as ended, state, case when state = 'completed' then result end as result,
    error, error_code, cancel_code, cancel_reason
  from ${t.job} where id = any($1::uuid[])`,
)
