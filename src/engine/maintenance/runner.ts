import { randomUUID } from 'node:crypto'
import type { Logger } from 'pino'
import { isConnectionError } from '../../db/connection-errors.ts'
import type { Database } from '../../db/database.ts'
import type { EngineMetrics } from '../metrics.ts'
import type { HandlerState, MaintenanceHandler } from './handler.ts'
import { MAX_TURN_MS, type Turn, takeTurn } from './turn.ts'

/** Runs one handler of the maintenance loop. */
export interface Runner {
  start(): void
  nudge(): void
  stop(deadlineMs: number): Promise<void>
  readonly state: HandlerState
}

const DEFAULT_DEADLINE_MS = 60_000
const DEFAULT_TURN_MS = 15_000

/** Time for aborted runs to come to their end when the loop stops. */
const ABORT_GRACE_MS = 1000

/** Part of its interval after which a handler is due again: timers of several processes are never quite even. */
const DUE = 0.9

/** Keeps one handler going: waits, takes its turn, runs it, and again. Its own failures end nothing. */
export function createRunner(options: {
  db: Database
  handler: MaintenanceHandler
  logger: Logger
  metrics: EngineMetrics
  changed: () => void
}): Runner {
  const { db, handler, metrics, changed } = options
  const turnMs = Math.min(handler.turnMs ?? DEFAULT_TURN_MS, MAX_TURN_MS)
  const logger = options.logger.child({ handler: handler.name })
  const state = { name: handler.name, running: false, runs: 0, failures: 0, lastError: null as string | null }
  const holder = randomUUID()
  let started = false
  let stopping = false
  let nudged = false
  let wakeUp: (() => void) | undefined
  /** The run under way, or one that outlasted its deadline. */
  let current: { done: Promise<void>; controller: AbortController } | undefined

  async function pause(ms: number): Promise<void> {
    if (nudged || stopping) return
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms)
      wakeUp = () => {
        clearTimeout(timer)
        resolve()
      }
    })
    wakeUp = undefined
  }

  /** Takes a turn and runs the handler in it, if it may. Never rejects. */
  async function run(gapMs: number, controller: AbortController): Promise<void> {
    try {
      const turn = await takeTurn(db, handler.name, { holder, turnMs, gapMs })
      if (!turn) return
      if (controller.signal.aborted) return await turn.end(messageOf(controller.signal.reason))
      await runInTurn(turn, controller)
      ended(undefined)
    } catch (error) {
      ended(error)
    }
  }

  async function runInTurn(turn: Turn, controller: AbortController): Promise<void> {
    const { signal } = controller
    const extending = setInterval(() => {
      turn.extend().then(
        (mine) => mine || controller.abort(new Error('another process has taken over')),
        // The database is away: the handler finds out by itself, or the next try succeeds.
        () => {},
      )
    }, turnMs / 3)
    let givenBack = false
    const giveBack = async (error: string | null) => {
      if (givenBack) return
      givenBack = true
      clearInterval(extending)
      await turn.end(error)
    }
    // Whatever the handler does after that, others may have the turn.
    signal.addEventListener('abort', () => void giveBack(messageOf(signal.reason)).catch(() => {}), { once: true })
    try {
      await handler.run({ db, logger, metrics, signal, changed, state: turn.state, remember: turn.remember })
    } catch (error) {
      await giveBack(messageOf(error)).catch(() => {})
      throw error
    }
    await giveBack(null)
  }

  /** Counts a run, and logs a failure once, however often it comes again, and that it is over. */
  function ended(error: unknown): void {
    state.runs += 1
    if (error !== undefined) state.failures += 1
    const message = error === undefined ? null : messageOf(error)
    if (message !== null && message !== state.lastError) {
      const text = `maintenance: ${handler.name} failed; it is tried again`
      if (isConnectionError(error)) logger.warn({ error: message }, text)
      else logger.error({ err: error }, text)
    } else if (message === null && state.lastError !== null) {
      logger.info(`maintenance: ${handler.name} works again`)
    }
    state.lastError = message
  }

  /** Starts a run and waits for its end or its deadline. */
  async function turn(gapMs: number): Promise<void> {
    if (current) return
    const controller = new AbortController()
    const done = run(gapMs, controller).finally(() => {
      current = undefined
      state.running = false
    })
    current = { done, controller }
    state.running = true
    const deadlineMs = handler.deadlineMs ?? DEFAULT_DEADLINE_MS
    if (await within(done, deadlineMs)) return
    const why = `it has not ended after ${deadlineMs} ms`
    logger.error(`maintenance: ${handler.name}: ${why}; it is started again once it has`)
    state.lastError = why
    controller.abort(new Error(why))
  }

  async function keepGoing(): Promise<void> {
    // Not all processes that start together at the same moment.
    await pause(Math.random() * Math.min(handler.intervalMs, 1000))
    while (!stopping) {
      const gapMs = nudged ? 0 : handler.intervalMs * DUE
      nudged = false
      await turn(gapMs)
      await pause(handler.intervalMs)
    }
  }

  return {
    start() {
      if (started || stopping) return
      started = true
      void keepGoing()
    },
    nudge() {
      nudged = true
      wakeUp?.()
    },
    async stop(deadlineMs) {
      stopping = true
      wakeUp?.()
      if (current && !(await within(current.done, deadlineMs))) {
        current?.controller.abort(new Error('maintenance stops'))
        if (current) await within(current.done, ABORT_GRACE_MS)
      }
    },
    get state() {
      return { ...state }
    },
  }
}

/** Whether a promise settles within a time. */
async function within(promise: Promise<void>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), ms)
  })
  return await Promise.race([promise.then(() => true), late]).finally(() => clearTimeout(timer))
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
