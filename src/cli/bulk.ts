import type { Command } from 'commander'
import type { BulkReport } from '../engine/bulk/bulk.ts'
import type { BulkJobsOptions } from '../engine/bulk/engine-bulk.ts'
import type { Engine } from '../engine/engine.ts'
import { countText } from '../engine/explain/words.ts'
import { formatJobId } from '../engine/ids.ts'
import type { JobFilter } from '../engine/reads/job-filter.ts'
import { CliError } from './cli-error.ts'
import { filterOf, withFilterFlags } from './job-filter-flags.ts'
import { jobToJson } from './tree/json.ts'

/** A bulk verb, and how its past tense is said. */
export interface BulkCommand {
  run(engine: Engine, filter: JobFilter, options: BulkJobsOptions): Promise<BulkReport>
  done: string
}

/** The bulk verbs, by the command of the single one. */
export const BULK: Readonly<Record<string, BulkCommand>> = {
  cancel: { run: (engine, filter, options) => engine.cancelJobs(filter, options), done: 'cancelled' },
  retry: { run: (engine, filter, options) => engine.retryJobs(filter, options), done: 'opened again' },
  archive: { run: (engine, filter, options) => engine.archiveJobs(filter, options), done: 'archived' },
  delete: { run: (engine, filter, options) => engine.deleteJobs(filter, options), done: 'deleted' },
}

/** Adds the flags of a bulk verb. */
export function withBulkFlags(command: Command): Command {
  return withFilterFlags(command)
    .option('--dry-run', 'of many: only say what would happen')
    .option('--limit <COUNT>', 'of many: at most so many, oldest first', '1000')
}

/** What a command says of many jobs. */
export interface BulkAnswer {
  json: object
  text: string
}

/**
 * Does a verb to the jobs that flags name.
 *
 * @throws {CliError} no flag names any
 */
export async function runBulk(
  { run, done }: BulkCommand,
  engine: Engine,
  flags: Readonly<Record<string, unknown>>,
  by: { actor: string; reason?: string },
): Promise<BulkAnswer> {
  const filter = filterOf(flags)
  const options = { ...by, dryRun: flags.dryRun === true, limit: Number(flags.limit) }
  const { sample, ...report } = await run(engine, filter!, options)
  const { dryRun, matched, changed, cancelledDescendants } = report
  const more = matched > changed ? `, of ${countText(matched, 'job')} that match` : ''
  const below = cancelledDescendants > 0 ? `; ${countText(cancelledDescendants, 'descendant')} cancelled with them` : ''
  const jobs = sample.map((job) => `  ${formatJobId(job.id)} ${job.type} ${job.state}`)
  const rest = changed > sample.length ? [`  and ${countText(changed - sample.length, 'other')}`] : []
  const first = dryRun
    ? `Would be ${done}: ${countText(changed, 'job')}${more}${below}`
    : `${countText(changed, 'job')} ${done}${more}${below}`
  return {
    json: { ...report, sample: sample.map(jobToJson) },
    text: [first, ...jobs, ...rest].join('\n'),
  }
}

/**
 * Whether a command is for many jobs.
 *
 * @throws {CliError} it names one job and many, or none
 */
export function isForMany(id: string | undefined, flags: Readonly<Record<string, unknown>>): boolean {
  const many = filterOf(flags) !== undefined
  if (id !== undefined && (many || flags.dryRun === true)) {
    throw new CliError('Give either the ID of one job, or flags that name many.', { exitCode: 2 })
  }
  if (id === undefined && !many) throw new CliError('Give the ID of a job, or flags that name many.', { exitCode: 2 })
  return many
}
