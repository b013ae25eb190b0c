import type { Logger } from 'pino'
import type { Config } from '../config.ts'
import { migrate } from '../db/migrate.ts'
import { createEngine } from '../engine/create-engine.ts'
import type { AnyDefinition } from '../engine/definition/define-job.ts'
import type { Engine } from '../engine/engine.ts'
import type { ApiServer } from '../server/server.ts'
import { type Installation, openInstallation } from './installation.ts'
import { onStopSignal } from './stop-signal.ts'

/** What a program that goes on until it is stopped runs on. */
export interface RunOptions {
  readonly config: Config
  readonly logger: Logger
  readonly jobs: readonly AnyDefinition[]
  /** Whether to run jobs, rather than only to enqueue, steer and watch them. */
  readonly worker: boolean
  /** Makes the server of the API, if there is to be one. */
  readonly server?: (engine: Engine) => Promise<ApiServer>
}

/**
 * Starts an engine, and a server before it claims its first job; runs them until SIGINT or SIGTERM, then stops them in
 * order.
 *
 * @param onStarted told the server's URL; undefined without one.
 * @throws what keeps them from starting or from going on.
 */
export async function runEngine(options: RunOptions, onStarted: (url: string | undefined) => void): Promise<void> {
  const { config, logger } = options
  const stop = onStopSignal()
  const undo: (() => Promise<void>)[] = []
  try {
    const installation = await openInstallation(config, logger)
    undo.push(() => installation.close())
    const { directConnectionString: connectionString } = installation
    // Before anybody can ask the API for what is in the tables.
    await migrate({
      connectionString,
      schema: config.schema,
      log: (line) => logger.info({ component: 'migrate' }, line),
    })
    const engine = engineOf(options, installation)
    undo.push(() => engine.stop())
    const fatal = new Promise<never>((_, reject) => engine.on('fatal', reject))
    fatal.catch(() => {})
    const server = await options.server?.(engine)
    if (server) undo.push(() => server.stop())
    await engine.start()
    onStarted(server?.url)
    const signal = await Promise.race([stop.signal, fatal])
    logger.info({ signal }, 'Stopping')
  } finally {
    for (const step of undo.reverse()) {
      await step().catch((error: unknown) => logger.error({ err: error }, 'Something did not stop in order'))
    }
    stop.release()
  }
  logger.info('Stopped')
}

function engineOf({ config, logger, jobs, worker }: RunOptions, installation: Installation): Engine {
  const { connectionString, directConnectionString } = installation
  return createEngine({
    connectionString,
    directConnectionString,
    schema: config.schema,
    jobs,
    worker,
    ...(config.queues !== undefined && { queues: config.queues }),
    concurrency: config.concurrency,
    heartbeat: config.heartbeatMs,
    grace: config.graceMs,
    retention: {
      completed: config.keepCompletedMs,
      failed: config.keepFailedMs,
      cancelled: config.keepCancelledMs,
      events: config.keepEventsMs,
    },
    pollOnly: config.pollOnly,
    logger,
  })
}
