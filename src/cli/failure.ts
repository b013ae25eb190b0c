import pg from 'pg'
import { ConfigError } from '../config.ts'
import { errorCodeOf, isConnectionError } from '../db/connection-errors.ts'
import { ValidationError } from '../engine/errors.ts'
import { CliError } from './cli-error.ts'

/** How a command ends that failed. */
export interface Failure {
  /** What programs go by: the error's own, or `USAGE`, `UNAVAILABLE`, `DATABASE`, `INTERNAL`. */
  readonly code: string
  readonly text: string
  readonly exitCode: number
}

/** What to tell the user of an error: what is wrong and, where it is known, what to do. A stack only for a fault of ours. */
export function failureOf(error: unknown): Failure {
  if (error instanceof CliError) {
    return { code: error.exitCode === 2 ? 'USAGE' : error.code, text: error.message, exitCode: error.exitCode }
  }
  if (error instanceof ConfigError) return { code: error.code, text: error.message, exitCode: 2 }
  const code = errorCodeOf(error)
  if (code === 'EADDRINUSE') {
    const { address, port } = error as { address?: string; port?: number }
    const text = `Port ${port} of ${address} is taken: choose another with --port or PORT (0 takes a free one).`
    return { code, text, exitCode: 1 }
  }
  if (isConnectionError(error)) {
    return { code: 'UNAVAILABLE', text: `The database cannot be reached: ${messageOf(error)}`, exitCode: 1 }
  }
  if (error instanceof pg.DatabaseError) {
    return { code: 'DATABASE', text: `The database refuses: ${error.message}`, exitCode: 1 }
  }
  // An error of the system or of this program's own, whose message is written for people.
  if (error instanceof Error && code !== undefined) return { code, text: messageOf(error), exitCode: 1 }
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error)
  return { code: 'INTERNAL', text, exitCode: 1 }
}

/** A failure as a line of JSON: `{ "error": { "code", "message" } }`, with `issues` where input was refused. */
export function failureJson({ code, text }: Failure, error?: unknown): string {
  const issues = error instanceof ValidationError ? { issues: error.issues } : {}
  return JSON.stringify({ error: { code, message: text, ...issues } })
}

/** Errors of a name with several addresses have one for each, and no message of their own. */
function messageOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(messageOf).join('; ')
  return error instanceof Error ? error.message : String(error)
}
