import type { Logger } from 'pino'
import type { Database } from '../../db/database.ts'
import type { BeatReport } from '../lease/messages.ts'
import type { SettleJob } from '../settle/settle-batch.ts'
import type { Attempt } from './attempt.ts'
import { findHeldClaims, findLostClaims } from './held-claims.ts'

/** Shortest time between two looks, in ms. */
const INTERVAL_MS = 250

/** What the watch needs of its worker. */
export interface ClaimWatchOptions {
  db: Database
  logger: Logger
  /** By claim token: running, or ended and not settled yet. */
  attempts: ReadonlyMap<string, Attempt>
  /** Resolves when no claim that was under way at the call is so any more. */
  claimsArrived(): Promise<void>
  /** Puts back jobs that this worker holds in the database, but not in its memory. */
  putBack(jobs: readonly SettleJob[]): void
}

/** Keeps what a worker believes to hold and what it holds in the database the same. */
export class ClaimWatch {
  readonly #options: ClaimWatchOptions
  #timer: NodeJS.Timeout | undefined
  #looking = false
  #again = false
  #stopped = false
  #lookedAt = Number.NEGATIVE_INFINITY

  constructor(options: ClaimWatchOptions) {
    this.#options = options
  }

  /** Finds attempts that lost their jobs and aborts them: at once, or as soon as the interval since the last is over. */
  look(): void {
    if (this.#stopped || this.#timer) return
    if (this.#looking) {
      this.#again = true
      return
    }
    const wait = this.#lookedAt + INTERVAL_MS - performance.now()
    if (wait <= 0) void this.#lookNow()
    else {
      this.#timer = setTimeout(() => {
        this.#timer = undefined
        void this.#lookNow()
      }, wait)
    }
  }

  /** Compares with what a heartbeat saw. */
  compare(workerId: string, report: BeatReport): void {
    const { attempts } = this.#options
    const held = new Set(report.held.map((claim) => claim.claimToken))
    for (const [token, attempt] of attempts) {
      if (!attempt.over && attempt.startedAt < report.askedAt && !held.has(token)) {
        this.look()
        break
      }
    }
    const unknown = [...held].filter((token) => !attempts.has(token))
    if (unknown.length > 0) void this.#putBackForgotten(workerId, unknown)
  }

  stop(): void {
    this.#stopped = true
    clearTimeout(this.#timer)
  }

  async #lookNow(): Promise<void> {
    const { db, attempts } = this.#options
    const running = [...attempts.values()].filter((attempt) => !attempt.over)
    if (running.length === 0) return
    this.#looking = true
    this.#lookedAt = performance.now()
    try {
      const claims = running.map(({ job }) => ({ jobId: job.id, claimToken: job.claimToken }))
      for (const { claimToken, code } of await findLostClaims(db, claims)) attempts.get(claimToken)?.abandon(code)
    } catch (error) {
      // The next ring or beat looks again.
      this.#options.logger.debug({ err: error }, 'Claims could not be compared')
    } finally {
      this.#looking = false
      if (this.#again) {
        this.#again = false
        this.look()
      }
    }
  }

  /**
   * A claim whose answer was lost on the way holds jobs that no attempt knows of: they would wait for ever on a worker
   * that lives. Once every claim that may have brought these tokens has arrived, those still unknown are such.
   */
  async #putBackForgotten(workerId: string, claimTokens: readonly string[]): Promise<void> {
    const { db, attempts, logger } = this.#options
    try {
      await this.#options.claimsArrived()
      const unknown = claimTokens.filter((token) => !attempts.has(token))
      const jobs = await findHeldClaims(db, workerId, unknown)
      if (jobs.length === 0) return
      logger.warn(`Put back, for their claim never arrived here: ${jobs.length} jobs`)
      this.#options.putBack(jobs)
    } catch (error) {
      logger.debug({ err: error }, 'Claims could not be compared')
    }
  }
}
