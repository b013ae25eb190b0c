import type { Command } from 'commander'
import { migrate } from '../db/migrate.ts'
import { openInstallation } from './installation.ts'
import { createLogger } from './logger.ts'
import { commandWith, configOf, DATABASE_SETTINGS } from './settings-options.ts'

/** `coppice migrate`. */
export function migrateCommand(): Command {
  return commandWith('migrate', "bring the database's schema up to date", DATABASE_SETTINGS)
    .option('--json', 'write the result as JSON')
    .action(async (flags: { json?: boolean }) => {
      const config = configOf(flags as Record<string, unknown>)
      const logger = createLogger(config.logLevel)
      const installation = await openInstallation(config, logger)
      try {
        const { schema } = config
        const log = (line: string) => logger.info({ component: 'migrate' }, line)
        const result = await migrate({ connectionString: installation.connectionString, schema, log })
        const { from, to, applied } = result
        const text =
          from === to
            ? `Schema "${schema}" is up to date at version ${to}.`
            : `Schema "${schema}" went from version ${from} to ${to}: ${applied.join(', ')}.`
        process.stdout.write(`${flags.json ? JSON.stringify({ schema, ...result }) : text}\n`)
      } finally {
        await installation.close()
      }
    })
}
