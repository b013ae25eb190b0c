import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { pino } from 'pino'
import { createEngine } from '../engine/create-engine.ts'
import type { AnyDefinition } from '../engine/definition/define-job.ts'
import type { Engine } from '../engine/engine.ts'
import type { EngineOptions } from '../engine/engine-settings.ts'
import type { JobState } from '../engine/states.ts'
import { type DrainOptions, drain } from './drain.ts'
import { throwawayServer } from './throwaway-server.ts'

/** How to make an engine for tests. */
export interface TestEngineOptions
  extends Omit<EngineOptions, 'connectionString' | 'directConnectionString' | 'schema' | 'jobs'> {
  /** A database to use instead of an embedded server; the engine makes a schema of its own in it. */
  connectionString?: string
}

/** A started engine on tables of its own. */
export interface TestEngine extends Engine, AsyncDisposable {
  /**
   * Waits until nothing can run any more.
   *
   * @returns how many jobs are in each state then.
   * @throws {DrainTimeoutError}
   */
  drain(options?: DrainOptions): Promise<Record<JobState, number>>
  /** Stops the engine and removes everything that was made for it: its tables, and the server if nobody else uses it. */
  stop(options?: { grace?: number }): Promise<void>
  /** Where its tables are, for statements of the test's own. */
  readonly connectionString: string
  readonly schema: string
}

/**
 * Starts an engine with these jobs on a throw-away database. Without a connection string that is an embedded PostgreSQL,
 * started for the first engine of the process and ended with the last. Logs nothing unless it is given a logger; a
 * handler that still runs at `stop` is given no time, unless `grace` says so.
 *
 * @example
 * const engine = await testEngine([digestFileJob, digestFolderJob])
 * const handle = await engine.enqueue(digestFolder.with({ path: '/etc' }))
 * await engine.drain()
 * const end = await engine.waitFor(handle)
 * await engine.stop()
 */
export async function testEngine(jobs: readonly AnyDefinition[], options: TestEngineOptions = {}): Promise<TestEngine> {
  const { connectionString: given, ...engineOptions } = options
  const server = given === undefined ? await throwawayServer() : { connectionString: given, release: async () => {} }
  const { connectionString } = server
  const schema = `coppice_test_${randomBytes(6).toString('hex')}`
  const remove = async () => {
    try {
      await dropSchema(connectionString, schema)
    } finally {
      await server.release()
    }
  }
  let engine: Engine | undefined
  try {
    engine = createEngine({
      poll: 100,
      heartbeat: '1s',
      grace: 0,
      logger: pino({ level: 'silent' }),
      ...engineOptions,
      connectionString,
      schema,
      jobs,
    })
    await engine.start()
  } catch (error) {
    await engine?.stop({ grace: 0 })
    await remove()
    throw error
  }
  const { queues = null } = engineOptions
  const stopEngine = engine.stop.bind(engine)
  let stopped: Promise<void> | undefined
  const stop = (stopOptions?: { grace?: number }) => {
    stopped ??= stopEngine(stopOptions).finally(remove)
    return stopped
  }
  const own = engine
  return Object.assign(engine, {
    connectionString,
    schema,
    drain: (drainOptions?: DrainOptions) => drain(own, queues, drainOptions),
    stop,
    [Symbol.asyncDispose]: () => stop(),
  })
}

async function dropSchema(connectionString: string, schema: string): Promise<void> {
  const client = new pg.Client({ connectionString })
  client.on('error', () => {})
  await client.connect()
  try {
    await client.query(`drop schema if exists ${pg.escapeIdentifier(schema)} cascade`)
  } finally {
    await client.end()
  }
}
