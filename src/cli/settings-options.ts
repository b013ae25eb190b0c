import { Command, Option } from 'commander'
import { type Config, loadConfig, type Setting, settings } from '../config.ts'
import { ACCESS_SETTINGS } from '../settings/access.ts'
import { LIMIT_SETTINGS } from '../settings/limits.ts'

/** Settings that every command takes which touches the database. */
export const DATABASE_SETTINGS = ['databaseUrl', 'dataDir', 'schema', 'logLevel'] as const

/** Settings of a command that also listens for news. */
export const LISTENING_SETTINGS = [...DATABASE_SETTINGS, 'directDatabaseUrl', 'pollOnly'] as const

/** Settings of a worker. */
export const WORKER_SETTINGS = [
  ...LISTENING_SETTINGS,
  'queues',
  'concurrency',
  'heartbeatMs',
  'graceMs',
  'keepCompletedMs',
  'keepFailedMs',
  'keepCancelledMs',
  'keepEventsMs',
] as const

/** Settings of the API. */
export const SERVER_SETTINGS = [
  'port',
  'host',
  ...ACCESS_SETTINGS.map(({ name }) => name),
  ...LIMIT_SETTINGS.map(({ name }) => name),
] as const

/** A command that takes these settings as flags; help names the variable and the default of each. */
export function commandWith(name: string, description: string, names: readonly (keyof Config)[]): Command {
  const command = new Command(name).description(description)
  for (const setting of settings as readonly Setting[]) {
    if (!(names as readonly string[]).includes(setting.name)) continue
    const flag = setting.placeholder === undefined ? setting.flag : `${setting.flag} <${setting.placeholder}>`
    const byDefault = setting.default === undefined ? '' : `, default ${setting.default}`
    command.addOption(new Option(flag, `${setting.description} (${setting.env}${byDefault})`))
  }
  return command
}

/**
 * The settings of a command that was given these flags, from the environment where a flag is missing.
 *
 * @throws {ConfigError} listing everything that is wrong.
 */
export function configOf(flags: Readonly<Record<string, unknown>>): Config {
  return loadConfig({ env: process.env, flags })
}
