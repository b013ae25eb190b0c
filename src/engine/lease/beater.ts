import { errorCodeOf, isConnectionError } from '../../db/connection-errors.ts'
import { monotonicMs } from './clock.ts'
import { type LeaseConnection, leaseConnection } from './connection.ts'
import type { FromThread, ThreadError, ThreadInput, ToThread } from './messages.ts'
import { createObserver } from './observer.ts'
import { beat, declareDead, register, remove, resign } from './statements.ts'

/** What goes on in the heartbeat thread. */
export interface Beater {
  /** Registers the worker and beats until told to stop or until the row is lost. Never rejects. */
  run(): Promise<void>
  receive(message: ToThread): void
}

/** Pause before the `failures`-th try again, in ms: none before the first, then jittered and at most half an interval. */
export function retryDelayMs(failures: number, intervalMs: number): number {
  if (failures <= 1) return Math.random() * 20
  const cap = Math.min(1000, intervalMs / 2)
  return cap * (0.5 + Math.random() / 2)
}

/** Longest time for connecting and for one statement, in ms. */
export function deadlineMs(intervalMs: number): number {
  return Math.min(5000, Math.max(1000, intervalMs))
}

/**
 * The beat: every interval one statement on a connection of its own, which counts the own beat up and sees the others'.
 * It knows nothing of threads: messages go in by `receive` and out by `emit`.
 */
export function createBeater(input: ThreadInput, emit: (message: FromThread) => void): Beater {
  const { worker } = input
  const connection: LeaseConnection = leaseConnection({ ...input, deadlineMs: deadlineMs(worker.intervalMs) })
  const observer = createObserver(worker.intervalMs)
  let stopping: 'no' | 'asked' | 'tried' = 'no'
  let stop: { removeRow: boolean } | undefined
  let wakeUp: (() => void) | undefined

  /** Waits for a time on the monotonic clock, or for a message. */
  async function sleepUntil(time: number): Promise<void> {
    const delay = Math.max(0, time - monotonicMs())
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, delay)
      wakeUp = () => {
        clearTimeout(timer)
        resolve()
      }
    })
    wakeUp = undefined
  }

  async function registerRow(): Promise<boolean> {
    for (let failures = 0; ; ) {
      if (stop) return false
      try {
        await connection.query(register, [
          worker.id,
          worker.host,
          worker.pid,
          worker.queues,
          worker.types,
          worker.concurrency,
          worker.intervalMs,
          worker.schemaVersion,
        ])
        emit({ kind: 'registered' })
        return true
      } catch (error) {
        if (!isTransient(error)) {
          emit({ kind: 'refused', error: plain(error) })
          return false
        }
        emit({ kind: 'failing', error: plain(error) })
        failures += 1
        if (!stop) await sleepUntil(monotonicMs() + retryDelayMs(failures, worker.intervalMs))
      }
    }
  }

  /** One beat. Returns when the next is due at the latest; null: the row is lost. */
  async function beatOnce(): Promise<number | null> {
    const sentAt = monotonicMs()
    const rows = await connection.query(beat, [worker.id, stopping !== 'no'])
    const row = rows[0]!
    const receivedAt = monotonicMs()
    if (!row.alive) return null
    const living = row.others.filter((other) => !other.dead)
    const verdict = observer.look({ sentAt, receivedAt, workers: living })
    const deadWorkers = row.others.filter((other) => other.dead).map((other) => other.id)
    if (verdict.suspects.length > 0) {
      const parameters = [verdict.suspects.map((one) => one.id), verdict.suspects.map((one) => one.beat)]
      for (const { id } of await connection.query(declareDead, parameters)) deadWorkers.push(id)
    }
    const { held, newestSchema } = row
    emit({ kind: 'beat', report: { askedAt: sentAt, held, deadWorkers, newestSchema } })
    return Math.min(sentAt + worker.intervalMs, verdict.nextDueAt ?? Number.POSITIVE_INFINITY)
  }

  /** Beats until told to stop; false: the row is lost. */
  async function beatOn(): Promise<boolean> {
    for (let failures = 0; ; ) {
      if (stop) return true
      const asked = stopping === 'asked'
      let next: number | null
      try {
        next = await beatOnce()
        failures = 0
      } catch (error) {
        observer.reset()
        failures += 1
        emit({ kind: 'failing', error: plain(error) })
        next = monotonicMs() + retryDelayMs(failures, worker.intervalMs)
      }
      if (asked) {
        stopping = 'tried'
        emit({ kind: 'stopping-set' })
      }
      if (next === null) return false
      if (!stop && stopping !== 'asked') await sleepUntil(next)
    }
  }

  /** Takes the row away, or marks it dead if jobs still name it. A failure leaves it to be declared dead by others. */
  async function leave(removeRow: boolean): Promise<void> {
    try {
      if (removeRow && (await connection.query(remove, [worker.id])).length > 0) return
      await connection.query(resign, [worker.id])
    } catch (error) {
      emit({ kind: 'failing', error: plain(error) })
    }
  }

  return {
    async run() {
      if (await registerRow()) {
        if (!(await beatOn())) emit({ kind: 'lost' })
        else await leave(stop?.removeRow ?? false)
      }
      await connection.close()
      if (stop) emit({ kind: 'stopped' })
    },
    receive(message) {
      if (message.kind === 'stop') stop = { removeRow: message.removeRow }
      else if (stopping === 'no') stopping = 'asked'
      else emit({ kind: 'stopping-set' })
      wakeUp?.()
    },
  }
}

// How node-postgres says that this side's deadlines passed, for a statement and for connecting.
const DEADLINE_MESSAGES = ['Query read timeout', 'timeout expired']

/** Whether registering may be tried again: the server was not reached, or did not answer in time. */
function isTransient(error: unknown): boolean {
  return isConnectionError(error) || (error instanceof Error && DEADLINE_MESSAGES.includes(error.message))
}

function plain(error: unknown): ThreadError {
  return { message: error instanceof Error ? error.message : String(error), code: errorCodeOf(error) }
}
