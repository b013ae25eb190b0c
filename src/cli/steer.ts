import type { Command } from 'commander'
import { ASSIGNEE_STATUSES, type AssigneeStatus } from '../engine/assignee.ts'
import type { Engine } from '../engine/engine.ts'
import { formatId, formatJobId, parseJobId } from '../engine/ids.ts'
import type { Job } from '../engine/job.ts'
import { BULK, isForMany, runBulk, withBulkFlags } from './bulk.ts'
import { CliError } from './cli-error.ts'
import { readJobFile } from './job-file.ts'
import { commandWith, LISTENING_SETTINGS } from './settings-options.ts'
import { jobToJson } from './tree/json.ts'
import { withEngine } from './with-engine.ts'

/** Who the event log names for what commands do. */
const ACTOR = 'cli'

type Flags = Record<string, unknown> & { json?: boolean }

/** What a command says: as JSON, or in a line. */
interface Answer {
  json: object
  text: string
}

/** A verb on one job. */
interface Verb {
  name: string
  description: string
  /** Flags beyond `--reason` and `--json`, and what they mean. */
  flags?: Readonly<Record<string, string>>
  run(engine: Engine, id: string, options: { actor: string; reason?: string }, flags: Flags): Promise<Answer>
}

const DESCENDANTS = { '--descendants': 'its descendants too' }

const VERBS: readonly Verb[] = [
  {
    name: 'cancel',
    description: 'cancel a job and its active descendants',
    async run(engine, id, options) {
      const { job, cancelledDescendants } = await engine.cancelJob(id, options)
      return jobAnswer(job, { cancelledDescendants }, `with ${descendants(cancelledDescendants)}`)
    },
  },
  {
    name: 'delete',
    description: 'delete a job and cancel its active descendants',
    async run(engine, id, options) {
      const { job, cancelledDescendants } = await engine.deleteJob(id, options)
      const deletedId = formatJobId(job.id)
      return {
        json: { deletedId, cancelledDescendants },
        text: `${deletedId} deleted, ${descendants(cancelledDescendants)} cancelled`,
      }
    },
  },
  {
    name: 'pause',
    description: 'set a job aside; a running one when its attempt ends',
    flags: DESCENDANTS,
    run: async (engine, id, options, flags) =>
      jobAnswer((await engine.pauseJob(id, { ...options, descendants: flags.descendants === true })).job),
  },
  {
    name: 'resume',
    description: 'let a paused job go on',
    flags: DESCENDANTS,
    run: async (engine, id, options, flags) =>
      jobAnswer((await engine.resumeJob(id, { ...options, descendants: flags.descendants === true })).job),
  },
  {
    name: 'retry',
    description: 'run a failed or cancelled job again, in the phase it ended in',
    flags: {
      '--descendants': 'those that failed below it too',
      '--rerun': 'also a job that completed',
      '--no-children': 'leave children that were cancelled with it',
    },
    async run(engine, id, options, { descendants: below, rerun, children }) {
      const how = {
        ...options,
        descendants: below === true,
        rerun: rerun === true,
        children: children === false ? 'none' : 'reopen',
      } as const
      const { job, reopenedDescendants } = await engine.retryJob(id, how)
      return jobAnswer(job, { reopenedDescendants }, `with ${descendants(reopenedDescendants)}`)
    },
  },
  {
    name: 'rewake',
    description: 'wake a parent that waits although its children have ended',
    flags: { '--force': 'with children open, or once more although it failed' },
    async run(engine, id, options, { force }) {
      const { job, receipt } = await engine.rewakeParent(id, { ...options, force: force === true })
      const json = { receipt: { ...receipt, parentId: formatJobId(receipt.parentId) } }
      return jobAnswer(job, json, `for wave ${receipt.wave}${receipt.forced ? ', forced' : ''}`)
    },
  },
  {
    name: 'archive',
    description: "take a job out of lists and out of its parent's children; an active one is cancelled first",
    run: async (engine, id, options) => jobAnswer((await engine.archiveJob(id, options)).job, {}, 'and archived'),
  },
  {
    name: 'unarchive',
    description: 'put an archived job back',
    run: async (engine, id, options) => jobAnswer((await engine.unarchiveJob(id, options)).job, {}, 'and back'),
  },
]

/** The commands that steer: one for each verb on a job, `coppice spawn` and `coppice assignee`. */
export function steerCommands(): Command[] {
  return [...VERBS.map(verbCommand), spawnCommand(), assigneeCommand()]
}

function verbCommand({ name, description, flags = {}, run }: Verb): Command {
  const bulk = BULK[name]
  const command = commandWith(name, bulk ? `${description}; or many, by flags` : description, LISTENING_SETTINGS)
    .argument(bulk ? '[ID]' : '<ID>', 'JB_… of the job')
    .option('--reason <TEXT>', 'why, for the audit trail')
    .option('--json', 'write the answer as JSON')
  for (const [flag, meaning] of Object.entries(flags)) command.option(flag, meaning)
  if (bulk) withBulkFlags(command)
  return command.action(async (given: string | undefined, options: Flags) => {
    const { reason } = options
    const by = { actor: ACTOR, ...(typeof reason === 'string' && { reason }) }
    if (bulk && isForMany(given, options)) {
      const single = Object.keys(flags).find((flag) => options[flag.slice(2)] === true)
      if (single) throw new CliError(`${single} is for one job.`, { exitCode: 2 })
      return withEngine(options, [], async (engine) => write(options, await runBulk(bulk, engine, options, by)))
    }
    const id = parseJobId(given!)
    await withEngine(options, [], async (engine) => write(options, await run(engine, id, by, options)))
  })
}

function spawnCommand(): Command {
  return commandWith('spawn', 'add a child to a parent that waits, or that runs its ingest', LISTENING_SETTINGS)
    .argument('<PARENT>', 'JB_… of the parent')
    .requiredOption('--file <PATH>', 'the child as JSON, with its own children if it has any; - reads standard input')
    .option('--json', 'write the answer as JSON')
    .action(async (given: string, flags: Flags & { file: string }) => {
      const parentId = parseJobId(given)
      const child = await readJobFile(flags.file)
      await withEngine(flags, [], async (engine) => {
        const { children } = await engine.spawnChildren(parentId, [child], { actor: ACTOR })
        const { id, deduplicated } = children[0]!
        const json = { id: formatJobId(id), deduplicated }
        write(flags, { json, text: deduplicated ? `${json.id} (it was there already)` : json.id })
      })
    })
}

function assigneeCommand(): Command {
  return commandWith('assignee', 'make an assignee, or change whether it may act', LISTENING_SETTINGS)
    .argument('<ID>', 'AS_… or your own id of it')
    .argument('<STATUS>', ASSIGNEE_STATUSES.join(', '))
    .option('--json', 'write the answer as JSON')
    .action(async (given: string, word: string, flags: Flags) => {
      const status = word.toLowerCase()
      if (!(ASSIGNEE_STATUSES as readonly string[]).includes(status)) {
        throw new CliError(`STATUS is ${JSON.stringify(word)}: expected one of ${ASSIGNEE_STATUSES.join(', ')}`, {
          exitCode: 2,
        })
      }
      const id = given.startsWith('AS_') ? given.slice(3) : given
      await withEngine(flags, [], async (engine) => {
        const { assignee, woken } = await engine.setAssignee(id, status as AssigneeStatus, { actor: ACTOR })
        const json = { ...assignee, id: formatId('AS', assignee.id), woken: woken.map(formatJobId) }
        write(flags, { json, text: `${json.id} ${status}; parents woken: ${woken.length}` })
      })
    })
}

function jobAnswer(job: Job, more: object = {}, note = ''): Answer {
  const text = [formatJobId(job.id), job.state, note].filter((word) => word !== '').join(' ')
  return { json: { job: jobToJson(job), ...more }, text }
}

function descendants(count: number): string {
  return `${count} ${count === 1 ? 'descendant' : 'descendants'}`
}

function write(flags: Flags, { json, text }: Answer): void {
  process.stdout.write(`${flags.json ? JSON.stringify(json) : text}\n`)
}
