import type { Logger } from 'pino'
import type { Database } from '../../db/database.ts'
import type { EngineMetrics } from '../metrics.ts'
import type { HandlerState, MaintenanceHandler } from './handler.ts'
import { createRunner } from './runner.ts'

/** How to run maintenance. */
export interface MaintenanceOptions {
  db: Database
  handlers: readonly MaintenanceHandler[]
  logger: Logger
  metrics: EngineMetrics
  /** Called after a handler has committed something that workers or watchers are waiting for. */
  changed?: () => void
}

/** Runs named handlers, each at its own interval and in one process at a time. */
export interface MaintenanceLoop {
  /** Again: does nothing. */
  start(): void
  /** Runs a handler as soon as it can be, whatever its interval. An unknown name is an error. */
  nudge(name: string): void
  /**
   * Starts no more runs and waits for those under way: for `deadlineMs` (default 5,000), then their signals are aborted and
   * they get one second more. For good: a stopped loop does not start again.
   */
  stop(options?: { deadlineMs?: number }): Promise<void>
  readonly handlers: readonly HandlerState[]
}

/**
 * The maintenance loop: what no single event sets off, or what must happen although a process died. Handlers run side by
 * side: one that throws or hangs hurts no other, and none overlaps itself.
 */
export function createMaintenanceLoop(options: MaintenanceOptions): MaintenanceLoop {
  const { db, handlers, logger, metrics, changed = () => {} } = options
  const runners = new Map(
    handlers.map((handler) => [handler.name, createRunner({ db, handler, logger, metrics, changed })]),
  )
  if (runners.size < handlers.length) throw new RangeError('Two maintenance handlers have the same name.')
  return {
    start() {
      for (const runner of runners.values()) runner.start()
    },
    nudge(name) {
      const runner = runners.get(name)
      if (!runner) throw new RangeError(`There is no maintenance handler ${name}.`)
      runner.nudge()
    },
    async stop({ deadlineMs = 5000 } = {}) {
      await Promise.all([...runners.values()].map((runner) => runner.stop(deadlineMs)))
    },
    get handlers() {
      return [...runners.values()].map((runner) => runner.state)
    },
  }
}
