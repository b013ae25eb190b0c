import type { Database } from '../../db/database.ts'
import { latestVersion } from '../../db/migrate.ts'
import { SchemaTooNewError } from '../../db/migration-errors.ts'
import type { JobRegistry } from '../definition/job-registry.ts'
import type { EngineSettings } from '../engine-settings.ts'
import type { BeatReport } from '../lease/messages.ts'
import { Incarnations } from './incarnations.ts'
import { createOutageGuard } from './outage.ts'
import { Worker } from './worker.ts'

/** What the worker side tells the engine. */
export interface WorkerSideListener {
  /** Something was committed that others may wait for. */
  committed(): void
  /** Dead workers' jobs may be left to give back. */
  deadWorkers(): void
  /** It cannot go on. */
  fatal(error: unknown): void
}

/** The part of an engine that runs jobs: a worker, and the heartbeat that keeps its claims. */
export interface WorkerSide {
  readonly worker: Worker
  /** Registers, and begins to claim. While the database is away, it is waited for. */
  start(): Promise<void>
  stop(graceMs: number): Promise<void>
}

export async function createWorkerSide(
  db: Database,
  jobs: JobRegistry,
  settings: EngineSettings,
  on: WorkerSideListener,
): Promise<WorkerSide> {
  const { logger, concurrency, queues, pollMs } = settings
  const schemaVersion = await latestVersion()
  const worker = new Worker({
    db,
    jobs,
    queues,
    concurrency,
    pollMs,
    logger,
    outages: createOutageGuard(logger),
    onCommitted: on.committed,
    onDead: (workerId) => incarnations.renew(workerId),
    onFatal: on.fatal,
  })
  const beat = (report: BeatReport) => {
    worker.beat(report)
    if (report.deadWorkers.length > 0) on.deadWorkers()
    // Tables may mean something else by now: this program claims no more, and ends what it holds.
    if (report.newestSchema > schemaVersion) {
      on.fatal(new SchemaTooNewError(settings.schema, report.newestSchema, schemaVersion))
    }
  }
  const incarnations = new Incarnations(
    {
      connectionString: settings.directConnectionString,
      schema: settings.schema,
      logger,
      worker: {
        queues: queues ?? [],
        types: jobs.types,
        concurrency,
        intervalMs: settings.heartbeatMs,
        schemaVersion,
      },
    },
    {
      beat,
      fatal: on.fatal,
      incarnated: (workerId) => {
        if (workerId === null) worker.abandonAll()
        worker.incarnate(workerId)
      },
    },
  )
  return {
    worker,
    start: () => incarnations.start(),
    async stop(graceMs) {
      void incarnations.setStopping()
      await worker.stop(graceMs)
      await incarnations.stop()
    },
  }
}
