import type { Command } from 'commander'
import { NotFoundError } from '../engine/errors.ts'
import { parseJobId } from '../engine/ids.ts'
import { explained, writeExplained } from './explain/write.ts'
import { loadJobs } from './load-jobs.ts'
import { commandWith, DATABASE_SETTINGS } from './settings-options.ts'
import { withEngine } from './with-engine.ts'

interface Flags extends Record<string, unknown> {
  jobs?: string
  json?: boolean
}

/** `coppice explain`. */
export function explainCommand(): Command {
  return commandWith('explain', 'tell why a job does not move, and what comes next', DATABASE_SETTINGS)
    .argument('<ID>', 'JB_… of the job')
    .option('--jobs <MODULE>', 'job definitions: their concurrency limits and time limits are known only there')
    .option('--json', 'write the reasons as JSON, with the data behind them')
    .action(async (given: string, flags: Flags) => {
      const id = parseJobId(given)
      const jobs = flags.jobs === undefined ? [] : await loadJobs(flags.jobs)
      await withEngine(flags, jobs, async (engine) => {
        const job = await engine.job(id)
        const [one] = job ? await explained(engine, [job]) : []
        if (!one) throw new NotFoundError(id)
        await writeExplained([one], flags.json === true, (json) => json[0]!)
      })
    })
}
