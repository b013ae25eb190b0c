import { CommanderError } from 'commander'
import { failureJson, failureOf } from './failure.ts'
import { createProgram } from './program.ts'

/**
 * Runs one command and sets the exit code of the process: 0, 1 for a failure, 2 for a wrong command line or setting. With
 * `--json` what went wrong is JSON too, on standard error.
 *
 * @param args without the program's own name.
 */
export async function main(args: readonly string[]): Promise<void> {
  const json = asksForJson(args)
  try {
    await createProgram({ json }).parseAsync(args, { from: 'user' })
  } catch (error) {
    if (error instanceof CommanderError) {
      process.exitCode = error.exitCode === 0 ? 0 : 2
      // Help and version come this way too. In words, the message has been written already.
      if (json && error.exitCode !== 0) {
        const text = error.message.replace(/^error: /, '')
        process.stderr.write(`${failureJson({ code: 'USAGE', text, exitCode: 2 })}\n`)
      }
      return
    }
    const failure = failureOf(error)
    process.stderr.write(`${json ? failureJson(failure, error) : failure.text}\n`)
    process.exitCode = failure.exitCode
  }
}

/** As the command line says: also where it is wrong, so that there is no command to ask. */
function asksForJson(args: readonly string[]): boolean {
  const end = args.indexOf('--')
  return args.slice(0, end < 0 ? args.length : end).includes('--json')
}
