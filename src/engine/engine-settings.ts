import os from 'node:os'
import { type Logger, pino } from 'pino'
import { SchemaNameError } from '../db/migration-errors.ts'
import { isSchemaName } from '../db/schema-name.ts'
import { type AnyDefinition, isJobDefinition } from './definition/define-job.ts'
import { parseDuration } from './duration.ts'
import { ValidationError } from './errors.ts'
import { fields, issuesOf, listOf, storedText, such, text, yesOrNo } from './input/check.ts'
import { ACTOR, NAME } from './input/text.ts'
import { type HandlerName, type IntervalOptions, intervalsOf } from './maintenance/intervals.ts'
import { type Retention, type RetentionOptions, retentionOf } from './retention/options.ts'

/** How to make an engine. Durations are milliseconds or text such as `'5s'`. */
export interface EngineOptions {
  connectionString: string
  /** Past any pooler, for the doorbell, the heartbeat and migrations; default `connectionString`. */
  directConnectionString?: string
  /** Schema of Coppice's tables; default `coppice`. */
  schema?: string
  /** The types known here: their jobs are checked at the door, and run by this engine. */
  jobs?: readonly AnyDefinition[]
  /** Whether a started engine runs jobs; default: if it has any types. */
  worker?: boolean
  /** Queues served; default all. */
  queues?: readonly string[]
  /** Most jobs run at once; default 10. */
  concurrency?: number
  /** How often a worker shows that it lives; two missed, and its jobs go elsewhere. Default 5 s. */
  heartbeat?: number | string
  /** How often work is looked for when nothing rings; default 1 s. */
  poll?: number | string
  /** Do not LISTEN: for where that is not to be had. */
  pollOnly?: boolean
  /** How long `stop` lets handlers go on before it aborts their signals; default 30 s. */
  grace?: number | string
  /** How long jobs that have ended, and events, are kept; default: for ever. */
  retention?: RetentionOptions
  /** The loop that recovers, times out, wakes, sweeps and deletes: how often, by handler. */
  maintenance?: { intervals?: IntervalOptions }
  /** Whether `start` brings the schema up to date (default), or only checks that it fits. */
  migrate?: boolean
  /** Connections of the pool; default 10. */
  poolSize?: number
  /** Default: JSON on standard error, from level info. */
  logger?: Logger
  /** Who the event log names for what is done through this engine; default `library on <host>`. */
  actor?: string
}

/** Options with their defaults, checked. */
export interface EngineSettings {
  connectionString: string
  directConnectionString: string
  schema: string
  jobs: readonly AnyDefinition[]
  worker: boolean
  queues: readonly string[] | null
  concurrency: number
  heartbeatMs: number
  pollMs: number
  pollOnly: boolean
  graceMs: number
  retention: Retention
  intervals: Partial<Record<HandlerName, number>>
  migrate: boolean
  poolSize: number
  logger: Logger
  actor: string
}

/** Most jobs at once in one process. */
const MAX_CONCURRENCY = 10_000

/** Kinds of those options that no other check looks at. */
const ENGINE_OPTIONS = fields({
  directConnectionString: text.optional(),
  jobs: listOf(such(isJobDefinition, 'must be what defineJob returned')).optional(),
  worker: yesOrNo.optional(),
  queues: listOf(storedText(NAME))
    .refine((queues) => !Array.isArray(queues) || queues.length > 0, 'must name a queue, or be left out for all')
    .optional(),
  pollOnly: yesOrNo.optional(),
  retention: fields({}).optional(),
  maintenance: fields({ intervals: fields({}).optional() }).optional(),
  migrate: yesOrNo.optional(),
  logger: such(
    (value) => typeof (value as Partial<Logger> | null)?.child === 'function',
    'must be a logger of pino',
  ).optional(),
  actor: storedText(ACTOR).optional(),
})

/** @throws {ValidationError} with everything that is wrong. */
export function engineSettings(options: EngineOptions): EngineSettings {
  if (typeof options !== 'object' || options === null) throw ValidationError.of('options', 'must be an object')
  const issues = issuesOf(ENGINE_OPTIONS, options)
  const refused = new Set(issues.map((issue) => issue.path[0]))
  const duration = (name: 'heartbeat' | 'poll' | 'grace', standard: number, least: number): number => {
    try {
      const ms = parseDuration(options[name] ?? standard)
      if (ms < least) throw new RangeError(`must be at least ${least} ms`)
      return ms
    } catch (error) {
      issues.push({ path: [name], message: (error as Error).message })
      return standard
    }
  }
  const whole = (name: 'concurrency' | 'poolSize', standard: number, most: number): number => {
    const value = options[name] ?? standard
    if (Number.isInteger(value) && value >= 1 && value <= most) return value
    issues.push({ path: [name], message: `must be a whole number from 1 to ${most}` })
    return standard
  }
  if (typeof options.connectionString !== 'string' || options.connectionString === '') {
    issues.push({ path: ['connectionString'], message: 'must be given' })
  }
  if (options.schema !== undefined && !isSchemaName(options.schema)) {
    issues.push({ path: ['schema'], message: new SchemaNameError(options.schema).message })
  }
  const jobs = refused.has('jobs') ? [] : (options.jobs ?? [])
  if (!refused.has('jobs') && options.worker === true && jobs.length === 0)
    issues.push({ path: ['jobs'], message: 'must define a type, for a worker' })
  const settings: EngineSettings = {
    connectionString: options.connectionString,
    directConnectionString: options.directConnectionString ?? options.connectionString,
    schema: options.schema ?? 'coppice',
    jobs,
    worker: options.worker ?? jobs.length > 0,
    queues: options.queues ?? null,
    concurrency: whole('concurrency', 10, MAX_CONCURRENCY),
    heartbeatMs: duration('heartbeat', 5000, 100),
    pollMs: duration('poll', 1000, 10),
    pollOnly: options.pollOnly ?? false,
    graceMs: duration('grace', 30_000, 0),
    retention: retentionOf(refused.has('retention') ? {} : (options.retention ?? {}), issues),
    intervals: intervalsOf(refused.has('maintenance') ? {} : (options.maintenance?.intervals ?? {}), issues),
    migrate: options.migrate ?? true,
    poolSize: whole('poolSize', 10, 1000),
    logger: options.logger ?? pino({ name: 'coppice' }, pino.destination({ fd: 2 })),
    actor: options.actor ?? `library on ${os.hostname()}`,
  }
  if (issues.length > 0) throw new ValidationError(issues)
  return settings
}
