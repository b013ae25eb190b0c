import type { Command } from 'commander'
import type { Engine } from '../engine/engine.ts'
import { loadJobs } from './load-jobs.ts'
import { createLogger } from './logger.ts'
import { runEngine } from './run-engine.ts'
import { serverOptions } from './server-options.ts'
import { commandWith, configOf, SERVER_SETTINGS, WORKER_SETTINGS } from './settings-options.ts'

interface Flags extends Record<string, unknown> {
  jobs?: string
  worker: boolean
  json?: boolean
}

/** `coppice serve`. */
export function serveCommand(): Command {
  return commandWith('serve', 'serve the GraphQL API and run jobs', [...SERVER_SETTINGS, ...WORKER_SETTINGS])
    .option('--jobs <MODULE>', 'JavaScript or TypeScript file that exports job definitions')
    .option('--no-worker', 'run no jobs here')
    .option('--json', 'write what is to be known as JSON')
    .action(async (flags: Flags) => {
      const config = configOf(flags)
      const logger = createLogger(config.logLevel)
      const jobs = flags.jobs === undefined ? [] : await loadJobs(flags.jobs)
      const worker = flags.worker && jobs.length > 0
      // Only this command pays for loading GraphQL.
      const { createServer } = await import('../server/server.ts')
      const server = (engine: Engine) => createServer({ engine, logger, ...serverOptions(config) })
      await runEngine({ config, logger, jobs, worker, server }, (url) => {
        const types = worker ? jobs.map(({ type }) => type) : []
        const text = [
          `Coppice is at ${url}/graphql: GraphiQL in a browser, GraphQL for programs.`,
          types.length === 0 ? 'It runs no jobs here.' : `It runs ${types.join(', ')}.`,
          'Ctrl-C stops it.',
        ]
        process.stdout.write(`${flags.json ? JSON.stringify({ url: `${url}/graphql`, types }) : text.join('\n')}\n`)
      })
    })
}
