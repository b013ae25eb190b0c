import type { Logger } from 'pino'
import type { Config } from '../config.ts'
import { startEmbeddedServer } from '../db/embedded/server.ts'

/** The database that a command works on. */
export interface Installation {
  readonly connectionString: string
  /** Past any pooler. */
  readonly directConnectionString: string
  /** Lets go of it; ends an embedded server that this process started. */
  close(): Promise<void>
}

/**
 * The database of the settings; without one, the embedded server in the data folder: the one that another command
 * runs there, or else a new one.
 */
export async function openInstallation(config: Config, logger: Logger): Promise<Installation> {
  if (config.databaseUrl !== undefined) {
    const { databaseUrl, directDatabaseUrl = databaseUrl } = config
    return { connectionString: databaseUrl, directConnectionString: directDatabaseUrl, close: async () => {} }
  }
  const log = (line: string) => logger.info({ component: 'embedded' }, line)
  const { connectionString, stop } = await startEmbeddedServer({ dataDir: config.dataDir, log })
  return { connectionString, directConnectionString: connectionString, close: stop }
}
