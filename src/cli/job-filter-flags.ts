import type { Command } from 'commander'
import { FAILURE_CODES, type FailureCode } from '../engine/job.ts'
import type { JobFilter } from '../engine/reads/job-filter.ts'
import { JOB_STATES, type JobState } from '../engine/states.ts'
import { CliError } from './cli-error.ts'
import { parseJsonText } from './job-file.ts'

/** Flags that name jobs; commas separate the values of a list. */
const FLAGS: readonly [flag: string, meaning: string][] = [
  ['--state <STATES>', `in these states: ${JOB_STATES.join(', ')}`],
  ['--type <TYPES>', 'of these types'],
  ['--queue <QUEUES>', 'on these queues'],
  ['--tree <ID>', 'of this tree'],
  ['--parent <ID>', 'children of this job'],
  ['--roots', 'roots only'],
  ['--key <TEXT>', 'with this key'],
  ['--assignee <IDS>', 'of these assignees'],
  ['--worker <IDS>', 'running on these workers'],
  ['--error-code <CODES>', 'with these last errors, such as NETWORK,TIMEOUT'],
  ['--error <TEXT>', 'with this text in the last error'],
  ['--metadata <JSON>', 'whose metadata contain this'],
  ['--search <TEXT>', 'with this text in id, key, type or error'],
  ['--created-after <INSTANT>', 'enqueued at or after, such as 2030-01-31T08:00:00Z'],
  ['--created-before <INSTANT>', 'enqueued before'],
  ['--archived', 'archived ones only'],
]

/** Adds the flags that name jobs. */
export function withFilterFlags(command: Command): Command {
  for (const [flag, meaning] of FLAGS) command.option(flag, meaning)
  return command
}

/** The filter that flags make; undefined where none was given. */
export function filterOf(flags: Readonly<Record<string, unknown>>): JobFilter | undefined {
  const text = (name: string) => flags[name] as string | undefined
  const list = (name: string) => text(name)?.split(',')
  const filter: JobFilter = {
    states: list('state')?.map((state) => oneOf('--state', state.toLowerCase(), JOB_STATES) as JobState),
    types: list('type'),
    queues: list('queue'),
    treeId: text('tree'),
    parentId: text('parent'),
    roots: flags.roots === true ? true : undefined,
    key: text('key'),
    assigneeIds: list('assignee'),
    workerIds: list('worker'),
    errorCodes: list('errorCode')?.map((code) => oneOf('--error-code', code, FAILURE_CODES) as FailureCode),
    error: text('error'),
    metadata: flags.metadata === undefined ? undefined : parseJsonText(text('metadata')!, '--metadata'),
    search: text('search'),
    createdAfter: instantOf('--created-after', text('createdAfter')),
    createdBefore: instantOf('--created-before', text('createdBefore')),
    archived: flags.archived === true ? true : undefined,
  }
  return Object.values(filter).every((value) => value === undefined) ? undefined : filter
}

function oneOf(flag: string, value: string, known: readonly string[]): string {
  if (known.includes(value)) return value
  throw wrong(flag, value, `expected one of ${known.join(', ')}`)
}

function instantOf(flag: string, text: string | undefined): Date | undefined {
  return text === undefined ? undefined : parseInstant(flag, text)
}

/** An instant with its zone, as RFC 3339 writes it. */
export function parseInstant(flag: string, text: string): Date {
  const date = new Date(text)
  if (/^\d{4}-\d\d-\d\dT.*(Z|[+-]\d\d:?\d\d)$/.test(text) && !Number.isNaN(date.getTime())) return date
  throw wrong(flag, text, 'expected an instant with its zone, such as 2030-01-31T08:00:00Z')
}

function wrong(flag: string, value: string, expected: string): CliError {
  return new CliError(`${flag} is ${JSON.stringify(value)}: ${expected}`, { exitCode: 2 })
}
