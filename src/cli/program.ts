import { readFileSync } from 'node:fs'
import { Command } from 'commander'
import { orphansCommand, stuckCommand } from './dry-runs.ts'
import { enqueueCommand } from './enqueue.ts'
import { explainCommand } from './explain.ts'
import { keyCommand } from './key.ts'
import { migrateCommand } from './migrate.ts'
import { serveCommand } from './serve.ts'
import { steerCommands } from './steer.ts'
import { treeCommand } from './tree.ts'
import { workCommand } from './work.ts'

/**
 * The command line, ready to be parsed; it never ends the process itself.
 *
 * @param options.json what is wrong with the command line is left to the caller to write.
 */
export function createProgram({ json = false }: { json?: boolean } = {}): Command {
  const program = new Command('coppice')
    .description('Job trees on PostgreSQL, watched and steered live over GraphQL')
    .version(versionOfPackage())
    .showHelpAfterError('(add --help for what there is)')
    .exitOverride()
  if (json) program.showHelpAfterError(false).configureOutput({ outputError: () => {} })
  const commands = [
    serveCommand(),
    workCommand(),
    migrateCommand(),
    enqueueCommand(),
    treeCommand(),
    ...steerCommands(),
    explainCommand(),
    stuckCommand(),
    orphansCommand(),
    keyCommand(),
  ]
  for (const command of commands) program.addCommand(command.copyInheritedSettings(program))
  return program
}

function versionOfPackage(): string {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))
  return version
}
