import { parse as parseConnectionString } from 'pg-connection-string'
import { z } from 'zod'
import { isSchemaName } from './db/schema-name.ts'
import { MAX_DURATION_MS, parseDuration } from './engine/duration.ts'
import { LEAST_RETENTION } from './engine/retention/options.ts'

/** One setting of a program: how it is given, what it means and how its text is read. */
export interface Setting<T = unknown> {
  /** Its name in {@link Config}. */
  readonly name: string
  /** Environment variable. */
  readonly env: string
  /** Long flag of the command line; goes before the variable. */
  readonly flag: `--${string}`
  /** What stands for its value in help, such as `PORT`; absent for a flag without a value. */
  readonly placeholder?: string
  readonly description: string
  /** What a value has to be, in words, for error messages. */
  readonly expected: string
  /** Text that is read when nothing is given; absent, the setting is then undefined. */
  readonly default?: string
  /** From text to value. */
  readonly parser: z.ZodType<T, string | undefined>
}

const text = z.string().trim().min(1)

const postgresUrl = text.regex(/^postgres(ql)?:\/\//).refine((value) => {
  try {
    parseConnectionString(value)
    return true
  } catch {
    return false
  }
})

const integer = (min: number, max: number) =>
  text
    .regex(/^\d{1,9}$/)
    .transform(Number)
    .pipe(z.number().min(min).max(max))

const duration = (minMs: number, maxMs: number) =>
  text
    .transform((value, context) => {
      try {
        return parseDuration(value)
      } catch {
        context.addIssue('not a duration')
        return z.NEVER
      }
    })
    .pipe(z.number().min(minMs).max(maxMs))

const yesOrNo = z.stringbool({ truthy: ['true', '1', 'yes', 'on'], falsy: ['false', '0', 'no', 'off'] })

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const

/** All settings, in the order in which help and README list them. */
export const settings = [
  {
    name: 'databaseUrl',
    env: 'DATABASE_URL',
    flag: '--database-url',
    placeholder: 'URL',
    description: 'PostgreSQL server to use, 14 to 18; without it, an embedded one is started in the data folder',
    expected: 'a URL such as postgresql://user:password@host:5432/database',
    parser: postgresUrl.optional(),
  },
  {
    name: 'directDatabaseUrl',
    env: 'DIRECT_DATABASE_URL',
    flag: '--direct-database-url',
    placeholder: 'URL',
    description: 'the same database past any pooler, for LISTEN; defaults to DATABASE_URL',
    expected: 'a URL such as postgresql://user:password@host:5432/database',
    parser: postgresUrl.optional(),
  },
  {
    name: 'port',
    env: 'PORT',
    flag: '--port',
    placeholder: 'PORT',
    description: 'TCP port of the API and the web page; 0 takes a free one',
    expected: 'a whole number from 0 to 65535',
    default: '4000',
    parser: integer(0, 65_535),
  },
  {
    name: 'host',
    env: 'HOST',
    flag: '--host',
    placeholder: 'ADDRESS',
    description: 'address to listen on; a loopback address while no authentication is set up',
    expected: 'an IP address or a host name',
    default: '127.0.0.1',
    parser: text.regex(/^[a-z0-9.:_-]+$/i),
  },
  {
    name: 'dataDir',
    env: 'COPPICE_DATA_DIR',
    flag: '--data-dir',
    placeholder: 'FOLDER',
    description: 'folder of the embedded PostgreSQL',
    expected: 'a path',
    default: '.coppice',
    parser: text,
  },
  {
    name: 'schema',
    env: 'COPPICE_SCHEMA',
    flag: '--schema',
    placeholder: 'NAME',
    description: "schema of Coppice's tables in the database",
    expected: 'letters, digits and underscores, not beginning with a digit nor with pg_, at most 63',
    default: 'coppice',
    parser: text.refine(isSchemaName),
  },
  {
    name: 'queues',
    env: 'COPPICE_QUEUES',
    flag: '--queues',
    placeholder: 'NAMES',
    description: 'queues to work on, separated by commas; without it, all',
    expected: 'names separated by commas, such as default,mail',
    parser: text
      .transform((value) => [...new Set(value.split(',').map((name) => name.trim()))])
      .pipe(z.array(z.string().min(1).max(200)))
      .optional(),
  },
  {
    name: 'concurrency',
    env: 'COPPICE_CONCURRENCY',
    flag: '--concurrency',
    placeholder: 'COUNT',
    description: 'jobs to run at the same time',
    expected: 'a whole number from 1 to 10000',
    default: '10',
    parser: integer(1, 10_000),
  },
  {
    name: 'pollOnly',
    env: 'COPPICE_POLL_ONLY',
    flag: '--poll-only',
    description: 'look for news at intervals rather than LISTEN for them, as behind a transaction-mode pooler',
    expected: 'true or false',
    default: 'false',
    parser: yesOrNo,
  },
  {
    name: 'heartbeatMs',
    env: 'COPPICE_HEARTBEAT',
    flag: '--heartbeat',
    placeholder: 'DURATION',
    description: 'time between two signs of life of a worker; after two without one its jobs are given to others',
    expected: 'a duration from 100ms to 1h, such as 500ms, 5s or 1m',
    default: '5s',
    parser: duration(100, 3_600_000),
  },
  {
    name: 'graceMs',
    env: 'COPPICE_GRACE',
    flag: '--grace',
    placeholder: 'DURATION',
    description: 'time that running jobs get to end when the program is asked to stop',
    expected: 'a duration up to 1d, such as 0, 30s or 5m',
    default: '30s',
    parser: duration(0, 86_400_000),
  },
  {
    name: 'keepCompletedMs',
    env: 'COPPICE_KEEP_COMPLETED',
    flag: '--keep-completed',
    placeholder: 'DURATION',
    description:
      'delete trees whose root completed, so long after the last of their jobs ended; without it, they are kept',
    expected: 'a duration from 1s to 3653d, such as 12h or 30d',
    parser: duration(LEAST_RETENTION.completed, MAX_DURATION_MS).optional(),
  },
  {
    name: 'keepFailedMs',
    env: 'COPPICE_KEEP_FAILED',
    flag: '--keep-failed',
    placeholder: 'DURATION',
    description: 'the same for trees whose root failed',
    expected: 'a duration from 1s to 3653d, such as 12h or 30d',
    parser: duration(LEAST_RETENTION.failed, MAX_DURATION_MS).optional(),
  },
  {
    name: 'keepCancelledMs',
    env: 'COPPICE_KEEP_CANCELLED',
    flag: '--keep-cancelled',
    placeholder: 'DURATION',
    description: 'the same for trees whose root was cancelled',
    expected: 'a duration from 1s to 3653d, such as 12h or 30d',
    parser: duration(LEAST_RETENTION.cancelled, MAX_DURATION_MS).optional(),
  },
  {
    name: 'keepEventsMs',
    env: 'COPPICE_KEEP_EVENTS',
    flag: '--keep-events',
    placeholder: 'DURATION',
    description: 'delete events that are older, and expire cursors before them; without it, they are kept',
    expected: 'a duration from 1m to 3653d, such as 12h or 30d',
    parser: duration(LEAST_RETENTION.events, MAX_DURATION_MS).optional(),
  },
  {
    name: 'logLevel',
    env: 'COPPICE_LOG_LEVEL',
    flag: '--log-level',
    placeholder: 'LEVEL',
    description: `least level that is logged: ${LOG_LEVELS.join(', ')}`,
    expected: `one of ${LOG_LEVELS.join(', ')}`,
    default: 'info',
    parser: text.pipe(z.enum(LOG_LEVELS)),
  },
] as const satisfies readonly Setting[]

/** The settings of a program, checked. Durations are in milliseconds, as their names say. */
export type Config = {
  readonly [S in (typeof settings)[number] as S['name']]: z.output<S['parser']>
}

/** A setting that was given wrongly. */
export interface ConfigIssue {
  /** The flag or variable that it was given by. */
  readonly source: string
  /** What was given, with passwords hidden. */
  readonly given: string
  /** What was expected, in words. */
  readonly expected: string
}

/** Some settings are wrong; the message lists every one of them. */
export class ConfigError extends Error {
  readonly code = 'CONFIG'
  readonly issues: readonly ConfigIssue[]

  constructor(issues: readonly ConfigIssue[]) {
    const lines = issues.map(({ source, given, expected }) => `  ${source} is ${given}: expected ${expected}`)
    super(`${issues.length === 1 ? 'A setting is' : 'Some settings are'} wrong:\n${lines.join('\n')}`)
    this.name = 'ConfigError'
    this.issues = issues
  }
}

/** Where settings come from. */
export interface ConfigSources {
  readonly env: Readonly<Record<string, string | undefined>>
  /** By the flag in camel case (`--data-dir` is `dataDir`), as commander gives them; true for one without a value. */
  readonly flags?: Readonly<Record<string, unknown>>
}

/**
 * Reads all settings: a flag goes before its variable, which goes before the default. An empty variable counts as none.
 * @throws ConfigError listing everything that is wrong
 */
export function loadConfig(sources: ConfigSources): Config {
  const issues: ConfigIssue[] = []
  const values: Record<string, unknown> = {}
  for (const setting of settings as readonly Setting[]) {
    const { source, value } = given(setting, sources)
    const parsed = setting.parser.safeParse(value ?? setting.default)
    if (parsed.success) values[setting.name] = parsed.data
    else issues.push({ source, given: JSON.stringify(hidePassword(value ?? '')), expected: setting.expected })
  }
  const config = values as Config
  if (issues.length === 0 && config.databaseUrl === undefined && config.directDatabaseUrl !== undefined) {
    issues.push({ source: 'DATABASE_URL', given: 'not set', expected: 'a URL too when DIRECT_DATABASE_URL is set' })
  }
  if (issues.length > 0) throw new ConfigError(issues)
  return { ...config, directDatabaseUrl: config.directDatabaseUrl ?? config.databaseUrl }
}

/** The property of commander's options, and so of `flags`, that holds a setting. */
export function flagKey(setting: Pick<Setting, 'flag'>): string {
  return setting.flag.slice(2).replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase())
}

/** The settings as a table in Markdown, for the README. */
export function settingsTable(): string {
  const rows = (settings as readonly Setting[]).map((setting) => {
    const flag = setting.placeholder === undefined ? setting.flag : `${setting.flag} ${setting.placeholder}`
    const byDefault = setting.default === undefined ? '' : `\`${setting.default}\``
    return `| \`${setting.env}\` | \`${flag}\` | ${byDefault} | ${setting.description} |`
  })
  return ['| Variable | Flag | Default | Meaning |', '| --- | --- | --- | --- |', ...rows].join('\n')
}

function given(setting: Setting, { env, flags = {} }: ConfigSources): { source: string; value: string | undefined } {
  const flag = flags[flagKey(setting)]
  if (flag !== undefined) return { source: setting.flag, value: String(flag) }
  const variable = env[setting.env]
  return { source: setting.env, value: variable?.trim() === '' ? undefined : variable }
}

/** Error messages end up in logs. */
function hidePassword(value: string): string {
  return value.replace(/^([a-z+]+:\/\/)?.*@/i, '$1***@').replaceAll(/(password=)[^&\s]*/gi, '$1***')
}
