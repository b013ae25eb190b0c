import type { Command } from 'commander'
import { parseDuration } from '../engine/duration.ts'
import type { Engine } from '../engine/engine.ts'
import { formatJobId } from '../engine/ids.ts'
import type { NewJob } from '../engine/job.ts'
import { CliError } from './cli-error.ts'
import { parseJsonText, readJobFile } from './job-file.ts'
import { parseInstant } from './job-filter-flags.ts'
import { loadJobs } from './load-jobs.ts'
import { commandWith, LISTENING_SETTINGS } from './settings-options.ts'
import { withEngine } from './with-engine.ts'

interface Flags extends Record<string, unknown> {
  payload?: string
  key?: string
  queue?: string
  priority?: string
  runAt?: string
  maxRetries?: string
  file?: string
  jobs?: string
  wait?: boolean
  timeout?: string
  json?: boolean
}

/** `coppice enqueue`. */
export function enqueueCommand(): Command {
  return commandWith('enqueue', 'enqueue a job', LISTENING_SETTINGS)
    .argument('[TYPE]', 'type of the job')
    .option('--payload <JSON>', 'what the job is given')
    .option('--key <TEXT>', 'idempotency key: a second job of this type and key is not enqueued')
    .option('--queue <NAME>', 'queue to put it into')
    .option('--priority <NUMBER>', 'lower comes first')
    .option('--run-at <INSTANT>', 'not to be run before that, such as 2030-01-31T08:00:00Z')
    .option('--max-retries <NUMBER>', 'retries of each phase')
    .option('--file <PATH>', 'the job as JSON, with its children if it has any; - reads standard input')
    .option('--jobs <MODULE>', 'job definitions to check the payload by')
    .option('--wait', 'wait for its end and write the result; exit code 1 if it does not complete')
    .option('--timeout <DURATION>', 'with --wait: give up after that')
    .option('--json', 'write the answer as JSON')
    .action(async (type: string | undefined, flags: Flags) => {
      const job = await jobOf(type, flags)
      const timeoutMs = flags.timeout === undefined ? undefined : parseFlag('--timeout', flags.timeout, parseDuration)
      const jobs = flags.jobs === undefined ? [] : await loadJobs(flags.jobs)
      await withEngine(flags, jobs, async (engine) => {
        const enqueued = await engine.enqueue(job, { actor: 'cli' })
        const answer = { id: formatJobId(enqueued.id), deduplicated: enqueued.deduplicated }
        if (flags.wait) await waitAndWrite(engine, answer, timeoutMs, flags)
        else write(flags, answer, answer.deduplicated ? `${answer.id} (it was there already)` : answer.id)
      })
    })
}

async function jobOf(type: string | undefined, flags: Flags): Promise<NewJob> {
  if (flags.file === undefined) {
    if (type === undefined) throw new CliError('Give the TYPE of the job, or a --file.', { exitCode: 2 })
    return { type, ...fieldsOf(flags) }
  }
  if (type !== undefined) throw new CliError('Give either the TYPE of the job or a --file.', { exitCode: 2 })
  return { ...(await readJobFile(flags.file)), ...fieldsOf(flags) }
}

/** What the flags say of a job. */
function fieldsOf(flags: Flags): Omit<NewJob, 'type'> {
  const { payload, key, queue, priority, runAt, maxRetries } = flags
  return {
    ...(payload !== undefined && { payload: parseJsonText(payload, '--payload') }),
    ...(key !== undefined && { key }),
    ...(queue !== undefined && { queue }),
    ...(priority !== undefined && { priority: parseFlag('--priority', priority, wholeNumber) }),
    ...(runAt !== undefined && { runAt: parseInstant('--run-at', runAt) }),
    ...(maxRetries !== undefined && { maxRetries: parseFlag('--max-retries', maxRetries, wholeNumber) }),
  }
}

async function waitAndWrite(
  engine: Engine,
  answer: { id: string; deduplicated: boolean },
  timeoutMs: number | undefined,
  flags: Flags,
): Promise<void> {
  if (!flags.json) process.stderr.write(`Waiting for ${answer.id} (Ctrl-C ends the waiting, not the job)\n`)
  // Without it the end is found by polling.
  await engine.doorbell.start()
  const end = await engine.waitFor(answer.id, timeoutMs === undefined ? {} : { timeoutMs })
  const { id: _id, ...rest } = end
  if (end.state === 'completed') {
    write(flags, { ...answer, ...rest }, JSON.stringify(end.result))
    return
  }
  process.exitCode = 1
  if (flags.json) write(flags, { ...answer, ...rest }, '')
  else {
    const why = end.state === 'failed' ? `${end.errorCode} ${end.error}` : (end.cancelReason ?? end.cancelCode)
    process.stderr.write(`${answer.id} ${end.state}: ${why}\n`)
  }
}

function write(flags: Flags, json: unknown, text: string): void {
  process.stdout.write(`${flags.json ? JSON.stringify(json) : text}\n`)
}

function wholeNumber(text: string): number {
  if (!/^-?\d{1,10}$/.test(text)) throw new Error('expected a whole number')
  return Number(text)
}

function parseFlag<T>(flag: string, text: string, parse: (text: string) => T): T {
  try {
    return parse(text)
  } catch (error) {
    throw new CliError(`${flag} is ${JSON.stringify(text)}: ${(error as Error).message}`, { cause: error, exitCode: 2 })
  }
}
