import type { Command } from 'commander'
import type { Database } from '../db/database.ts'
import { orphans, stuckParents } from '../engine/explain/dry-runs.ts'
import { countText } from '../engine/explain/words.ts'
import type { Job } from '../engine/job.ts'
import { type Heavy, NO_HEAVY } from '../engine/reads/columns.ts'
import { PAGE_LIMITS, type Page, type PageRequest } from '../engine/reads/page.ts'
import { CliError } from './cli-error.ts'
import { explained, writeExplained } from './explain/write.ts'
import { commandWith, DATABASE_SETTINGS } from './settings-options.ts'
import { withEngine } from './with-engine.ts'
import { writeOut } from './write-out.ts'

interface Flags extends Record<string, unknown> {
  limit: string
  fix?: boolean
  json?: boolean
}

/** A command that lists what maintenance would do. */
interface DryRun {
  name: string
  description: string
  read(db: Database, page: PageRequest, heavy: Heavy): Promise<Page<Job>>
  /** What to say if there is nothing. */
  none: string
}

/** `coppice stuck`. */
export function stuckCommand(): Command {
  return dryRunCommand({
    name: 'stuck',
    description: 'list the parents that the reconciler would wake now, or withholds, and why',
    read: stuckParents,
    none: 'No parent is stuck.',
  })
}

/** `coppice orphans`. */
export function orphansCommand(): Command {
  return dryRunCommand({
    name: 'orphans',
    description: 'list the active jobs whose parent has ended or is gone',
    read: orphans,
    none: 'There are no orphans.',
  }).option('--fix', 'cancel all of them now, with their active descendants')
}

function dryRunCommand(run: DryRun): Command {
  return commandWith(run.name, run.description, DATABASE_SETTINGS)
    .option('--limit <COUNT>', 'at most so many', String(PAGE_LIMITS.max))
    .option('--json', 'write JSON: { jobs, more }, or with --fix what was done')
    .action(async (flags: Flags) => {
      const limit = Number(flags.limit)
      if (!Number.isInteger(limit) || limit < 1)
        throw new CliError('--limit must be a whole number from 1', { exitCode: 2 })
      await withEngine(flags, [], async (engine) => {
        if (flags.fix) {
          const { cancelled, parents } = await engine.sweepOrphans({ actor: 'cli' })
          const text =
            cancelled === 0 ? run.none : `Cancelled ${countText(cancelled, 'job')} of ${countText(parents, 'parent')}.`
          await writeOut(`${flags.json ? JSON.stringify({ cancelled, parents }) : text}\n`)
          return
        }
        const { jobs, more } = await readAll(engine.database, run, limit)
        if (jobs.length === 0 && !flags.json) return writeOut(`${run.none}\n`)
        // Of a list, what is decisive will do; `coppice explain` tells the rest.
        const list = (await explained(engine, jobs)).map(({ job, explanations }) => ({
          job,
          explanations: flags.json ? explanations : explanations.slice(0, 1),
        }))
        await writeExplained(list, flags.json === true, (json) => ({ jobs: json, more }))
        if (more && !flags.json) await writeOut(`\nThere are more: --limit ${limit * 10} shows them.\n`)
      })
    })
}

async function readAll(db: Database, { read }: DryRun, limit: number): Promise<{ jobs: Job[]; more: boolean }> {
  const jobs: Job[] = []
  for (let after: string | null = null; ; ) {
    const size = Math.min(PAGE_LIMITS.max, limit - jobs.length)
    const { edges, hasNextPage } = await read(db, { size, backwards: false, after, before: null }, NO_HEAVY)
    jobs.push(...edges.map(({ node }) => node))
    const last = edges.at(-1)
    if (!hasNextPage || !last || jobs.length >= limit) return { jobs, more: hasNextPage }
    after = last.cursor
  }
}
