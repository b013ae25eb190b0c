import type { Command } from 'commander'
import { loadJobs } from './load-jobs.ts'
import { createLogger } from './logger.ts'
import { runEngine } from './run-engine.ts'
import { commandWith, configOf, WORKER_SETTINGS } from './settings-options.ts'

/** `coppice work`. */
export function workCommand(): Command {
  return commandWith('work', 'run jobs, without the API', WORKER_SETTINGS)
    .requiredOption('--jobs <MODULE>', 'JavaScript or TypeScript file that exports job definitions')
    .option('--json', 'write what is to be known as JSON')
    .action(async (flags: { jobs: string; json?: boolean }) => {
      const config = configOf(flags as unknown as Record<string, unknown>)
      const jobs = await loadJobs(flags.jobs)
      const types = jobs.map(({ type }) => type)
      await runEngine({ config, logger: createLogger(config.logLevel), jobs, worker: true }, () => {
        const text = `Working on ${types.join(', ')}. Ctrl-C stops.`
        process.stdout.write(`${flags.json ? JSON.stringify({ types }) : text}\n`)
      })
    })
}
