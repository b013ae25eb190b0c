import pg from 'pg'
import type { Logger } from 'pino'
import type { Config } from '../config.ts'
import { loadConfig } from '../config.ts'
import { assertSchemaFits, migrate } from '../db/migrate.ts'
import { createEngine } from '../engine/create-engine.ts'
import type { AnyDefinition } from '../engine/definition/define-job.ts'
import type { Engine } from '../engine/engine.ts'
import { openInstallation } from './installation.ts'
import { createLogger } from './logger.ts'

/**
 * Runs a command of its own straight on the database, through an engine that runs no jobs. An embedded database is
 * brought up to date; any other must be, so that nobody migrates it in passing.
 *
 * @param flags the command's.
 * @param jobs types to check payloads by.
 */
export async function withEngine<T>(
  flags: Readonly<Record<string, unknown>>,
  jobs: readonly AnyDefinition[],
  use: (engine: Engine, logger: Logger) => Promise<T>,
): Promise<T> {
  // What is of interest in a server's log is noise around the answer to a command.
  const config = loadConfig({
    env: { ...process.env, COPPICE_LOG_LEVEL: process.env.COPPICE_LOG_LEVEL || 'warn' },
    flags,
  })
  const logger = createLogger(config.logLevel)
  const installation = await openInstallation(config, logger)
  try {
    const { connectionString, directConnectionString } = installation
    await prepareSchema(config, connectionString)
    const { schema, pollOnly } = config
    const engine = createEngine({
      connectionString,
      directConnectionString,
      schema,
      jobs,
      pollOnly,
      logger,
      poolSize: 4,
    })
    try {
      return await use(engine, logger)
    } finally {
      await engine.stop()
    }
  } finally {
    await installation.close()
  }
}

async function prepareSchema({ databaseUrl, schema }: Config, connectionString: string): Promise<void> {
  if (databaseUrl === undefined) {
    await migrate({ connectionString, schema })
    return
  }
  const client = new pg.Client({ connectionString, connectionTimeoutMillis: 10_000 })
  client.on('error', () => {})
  await client.connect()
  try {
    await assertSchemaFits(client, schema)
  } finally {
    await client.end()
  }
}
