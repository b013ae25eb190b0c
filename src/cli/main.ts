import { CommanderError } from 'commander'
import { failureOf } from './failure.ts'
import { createProgram } from './program.ts'

/**
 * Runs one command and sets the exit code of the process: 0, 1 for a failure, 2 for a wrong command line or setting.
 *
 * @param args without the program's own name.
 */
export async function main(args: readonly string[]): Promise<void> {
  try {
    await createProgram().parseAsync(args, { from: 'user' })
  } catch (error) {
    if (error instanceof CommanderError) {
      // Help and version come this way too. The message has been written already.
      process.exitCode = error.exitCode === 0 ? 0 : 2
      return
    }
    const { text, exitCode } = failureOf(error)
    process.stderr.write(`${text}\n`)
    process.exitCode = exitCode
  }
}
