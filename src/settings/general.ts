import { z } from 'zod'
import { isSchemaName } from '../db/schema-name.ts'
import { LEAST_RETENTION } from '../engine/retention/options.ts'
import { duration, integer, postgresUrl, text, yesOrNo } from './parsers.ts'
import type { Setting } from './setting.ts'

const TEN_YEARS_MS = 3653 * 86_400_000

const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const

/** Settings of the program as a whole, of its database and its workers. */
export const GENERAL_SETTINGS = [
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
    parser: duration(LEAST_RETENTION.completed, TEN_YEARS_MS).optional(),
  },
  {
    name: 'keepFailedMs',
    env: 'COPPICE_KEEP_FAILED',
    flag: '--keep-failed',
    placeholder: 'DURATION',
    description: 'the same for trees whose root failed',
    expected: 'a duration from 1s to 3653d, such as 12h or 30d',
    parser: duration(LEAST_RETENTION.failed, TEN_YEARS_MS).optional(),
  },
  {
    name: 'keepCancelledMs',
    env: 'COPPICE_KEEP_CANCELLED',
    flag: '--keep-cancelled',
    placeholder: 'DURATION',
    description: 'the same for trees whose root was cancelled',
    expected: 'a duration from 1s to 3653d, such as 12h or 30d',
    parser: duration(LEAST_RETENTION.cancelled, TEN_YEARS_MS).optional(),
  },
  {
    name: 'keepEventsMs',
    env: 'COPPICE_KEEP_EVENTS',
    flag: '--keep-events',
    placeholder: 'DURATION',
    description: 'delete events that are older, and expire cursors before them; without it, they are kept',
    expected: 'a duration from 1m to 3653d, such as 12h or 30d',
    parser: duration(LEAST_RETENTION.events, TEN_YEARS_MS).optional(),
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
