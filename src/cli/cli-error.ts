/** Something that the user of a command can mend; printed without a stack. Exit code 1, or 2 for a wrong command line. */
export class CliError extends Error {
  readonly code = 'CLI'
  readonly exitCode: 1 | 2

  constructor(message: string, options: ErrorOptions & { exitCode?: 1 | 2 } = {}) {
    super(message, options)
    this.name = 'CliError'
    this.exitCode = options.exitCode ?? 1
  }
}
