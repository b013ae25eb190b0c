import { isConnectionError } from '../db/connection-errors.ts'
import { openDatabase } from '../db/database.ts'
import { assertSchemaFits, migrate } from '../db/migrate.ts'
import { SchemaTooNewError } from '../db/migration-errors.ts'
import { createEngineBulk } from './bulk/engine-bulk.ts'
import { createJobRegistry } from './definition/job-registry.ts'
import type { ActorOptions, Engine, EnqueueOptions, SteerOptions } from './engine.ts'
import { createEngineLists } from './engine-lists.ts'
import { type EngineOptions, engineSettings } from './engine-settings.ts'
import { createEngineVerbs } from './engine-verbs.ts'
import { createEngineWatch } from './engine-watch.ts'
import { enqueueJobs, enqueueJobsIn } from './enqueue.ts'
import { UnavailableError, ValidationError } from './errors.ts'
import { createDoorbell } from './feed/doorbell.ts'
import { registerFeedMetrics } from './feed/feed-metrics.ts'
import { createFeed } from './feed/hub.ts'
import { parseJobId } from './ids.ts'
import { checkedOptions } from './input/check.ts'
import { ACTOR_OPTIONS, STEER_OPTIONS, STOP_OPTIONS, WAIT_OPTIONS } from './input/options.ts'
import { type JobHandle, jobHandle, typedEnd } from './job-handle.ts'
import { maintenanceHandlers } from './maintenance/handlers.ts'
import { createMaintenanceLoop } from './maintenance/loop.ts'
import { createMetrics } from './metrics.ts'
import { createOutsideBell } from './outside-bell.ts'
import { type PreparedJob, prepareJobs, prepareOneJob } from './prepare.ts'
import { createStats } from './stats/stats.ts'
import { createWakeCounters } from './stats/wake-counters.ts'
import { Waiters } from './wait-for.ts'
import { countAndLogWakes, watchWakes } from './wake-watch.ts'
import { within } from './worker/within.ts'
import { createWorkerSide, type WorkerSide } from './worker/worker-side.ts'

/** How long handlers may go on once the worker is broken. */
const FATAL_GRACE_MS = 5000
/** How long letting go of connections may take, each kind. */
const CLOSE_MS = 5000

/**
 * Makes an engine on a database. It connects when it is first used.
 *
 * @example
 * const engine = createEngine({ connectionString, jobs: [resizeJob] })
 * await engine.start()
 * const handle = await engine.enqueue(resize.with({ path: 'a.png', width: 640 }))
 * const end = await engine.waitFor(handle, { timeoutMs: 60_000 })
 * await engine.stop()
 * @throws {ValidationError} with every option that is wrong.
 */
export function createEngine(options: EngineOptions): Engine {
  const settings = engineSettings(options)
  const { connectionString, directConnectionString, schema, logger, pollOnly } = settings
  const jobs = createJobRegistry(settings.jobs)
  const db = openDatabase({
    connectionString,
    schema,
    poolSize: settings.poolSize,
    onError: (error) => logger.debug({ err: error }, 'An idle connection broke'),
  })
  const doorbell = createDoorbell({ connectionString: directConnectionString, schema, pollOnly, logger })
  const outsideBell = createOutsideBell(db)
  const hub = createFeed({ db, doorbell, logger })
  const metrics = createMetrics()
  watchWakes(db, countAndLogWakes(metrics, logger))
  registerFeedMetrics(metrics.registry, hub)
  const wakeCounters = createWakeCounters(db, metrics, {
    onError: (error) => logger.debug({ err: error }, 'the wake counters could not be written; they are later'),
  })
  const stats = createStats({ db, feed: hub, wakeCounters })
  const waiters = new Waiters(db, settings.pollMs)
  const fatalListeners = new Set<(error: unknown) => void>()
  let workerSide: WorkerSide | undefined
  let started: Promise<void> | undefined
  let stopped: Promise<void> | undefined
  let ownRing = false

  const maintenance = createMaintenanceLoop({
    db,
    logger,
    metrics,
    handlers: maintenanceHandlers(settings),
    changed: () => ring(),
  })
  doorbell.onRing(() => {
    waiters.ring()
    workerSide?.worker.look()
    // Its own settling tells the worker itself what there is to claim.
    if (!ownRing) workerSide?.worker.nudge()
  })

  function ring(): void {
    doorbell.ring()
    if (!started) outsideBell.ring()
  }

  /** Says in our own words that the database cannot be reached. */
  async function reach<T>(run: () => Promise<T>): Promise<T> {
    try {
      return await run()
    } catch (error) {
      if (!isConnectionError(error)) throw error
      throw new UnavailableError('The database cannot be reached.', { cause: error })
    }
  }

  /** Runs a verb, and tells everybody after its commit. */
  async function verb<T>(run: () => Promise<T>): Promise<T> {
    const result = await reach(run)
    ring()
    return result
  }

  const actorOf = (given?: ActorOptions) => ({
    actor: checkedOptions(ACTOR_OPTIONS, given)?.actor ?? settings.actor,
  })
  const steering = <Options extends SteerOptions>(given?: Options) =>
    ({
      ...checkedOptions(STEER_OPTIONS, given),
      actor: given?.actor ?? settings.actor,
    }) as Options & { actor: string }

  async function enqueuePrepared(prepared: readonly PreparedJob[], given?: EnqueueOptions) {
    const by = actorOf(given)
    const transaction = given?.transaction
    // Its commit is not ours to see: nothing is rung.
    if (transaction !== undefined) return reach(() => enqueueJobsIn(db, transaction, prepared, by))
    const enqueued = await verb(() => enqueueJobs(db, prepared, by))
    for (const { runAt } of prepared) if (runAt) workerSide?.worker.nudgeIn(runAt.getTime() - Date.now())
    return enqueued
  }

  async function start(): Promise<void> {
    const log = (line: string) => logger.info(line)
    if (settings.migrate) await migrate({ connectionString: directConnectionString, schema, log })
    else await assertSchemaFits(db.pool, schema)
    const listening = doorbell.start().then(() => hub.start())
    listening.catch(() => {})
    if (settings.worker && !stopped) await startWorking(listening)
    await listening
    maintenance.start()
    wakeCounters.start()
  }

  /** The heartbeat's thread takes a while to begin: listening begins meanwhile. */
  async function startWorking(listening: Promise<void>): Promise<void> {
    const side = await createWorkerSide(db, jobs, settings, {
      committed: () => {
        ownRing = true
        ring()
        ownRing = false
      },
      deadWorkers: () => maintenance.nudge('lease-recovery'),
      fatal,
    })
    if (stopped) return
    workerSide = side
    try {
      await Promise.all([side.start(), listening])
    } catch (error) {
      workerSide = undefined
      await side.stop(0)
      throw error
    }
  }

  async function stop(graceMs: number): Promise<void> {
    await Promise.all([workerSide?.stop(graceMs), maintenance.stop()])
    // The start may have been in the middle of something.
    await started?.catch(() => {})
    waiters.stop()
    // Connections that hang do not keep the process: what matters is done by now.
    await within(Promise.all([hub.stop(), outsideBell.stop(), wakeCounters.stop()]), CLOSE_MS)
    await within(doorbell.stop(), CLOSE_MS)
    await within(db.close(), CLOSE_MS)
  }

  function fatal(error: unknown): void {
    if (stopped) return
    logger.fatal({ err: error }, 'The worker cannot go on')
    // What runs may end, unless it is the settling that fails.
    const grace = Math.min(settings.graceMs, error instanceof SchemaTooNewError ? settings.graceMs : FATAL_GRACE_MS)
    void engine.stop({ grace }).then(() => {
      if (fatalListeners.size === 0) throw error
      for (const listener of fatalListeners) listener(error)
    })
  }

  const engine: Engine = {
    ...createEngineLists(db, jobs, reach),
    ...createEngineBulk({ db, reach, ring, steering }),
    start() {
      if (stopped) return Promise.reject(new UnavailableError('The engine was stopped.'))
      started ??= reach(start).catch((error: unknown) => {
        started = undefined
        throw error
      })
      return started
    },
    async stop(given) {
      const { grace = settings.graceMs } = checkedOptions(STOP_OPTIONS, given) ?? {}
      stopped ??= stop(grace)
      await stopped
    },
    async enqueue(job, given) {
      const [enqueued] = await enqueuePrepared([await prepareOneJob(job, jobs)], given)
      return jobHandle(enqueued!, job)
    },
    async enqueueMany(list, given) {
      const enqueued = await enqueuePrepared(await prepareJobs(list, jobs), given)
      return enqueued.map((one, index) => jobHandle(one, list[index]!))
    },
    async waitFor(job: JobHandle<unknown> | string, given?: { timeoutMs?: number }) {
      const id = parseJobId(typeof job === 'string' ? job : job?.id)
      const end = await waiters.wait(id, checkedOptions(WAIT_OPTIONS, given)?.timeoutMs)
      // biome-ignore lint/suspicious/noExplicitAny: the overloads say what comes out
      return (typeof job === 'string' ? end : await typedEnd(job, end)) as any
    },
    ring,
    ...createEngineWatch({ db, hub, stats: () => reach(stats) }),
    ...createEngineVerbs({
      db,
      jobs,
      reach,
      verb,
      actorOf,
      steering,
      swept: (count) => metrics.orphansCancelled.inc(count),
    }),
    on(event, listener) {
      if (event !== 'fatal') throw ValidationError.of('event', 'must be fatal')
      if (typeof listener !== 'function') throw ValidationError.of('listener', 'must be a function')
      fatalListeners.add(listener)
      return () => fatalListeners.delete(listener)
    },
    database: db,
    doorbell,
    jobs,
    metrics: metrics.registry,
    get running() {
      return started !== undefined && stopped === undefined
    },
  }
  return engine
}
