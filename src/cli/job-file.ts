import { readFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { z } from 'zod'
import type { NewJob } from '../engine/job.ts'
import { CliError } from './cli-error.ts'

const duration = z.union([z.number(), z.string()])

/** The fields of a new job, as JSON. Values are checked at the door of the engine; here it is names and kinds. */
const jobSchema: z.ZodType<NewJob> = z.strictObject({
  type: z.string(),
  payload: z.unknown().optional(),
  queue: z.string().optional(),
  priority: z.number().optional(),
  runAt: z.iso
    .datetime({ offset: true })
    .transform((instant) => new Date(instant))
    .optional(),
  key: z.string().optional(),
  metadata: z.json().optional(),
  maxRetries: z.number().optional(),
  assigneeId: z.string().optional(),
  onChildFailure: z.enum(['continue', 'fail_parent', 'ignore']).optional(),
  failureTolerance: z.union([z.number(), z.string()]).optional(),
  orphanPolicy: z.enum(['cancel', 'keep']).optional(),
  timeouts: z
    .strictObject({
      ingest: duration.optional(),
      aggregate: duration.optional(),
      wait: duration.optional(),
      onWaitTimeout: z.enum(['fail', 'aggregate']).optional(),
    })
    .optional(),
  ephemeral: z.boolean().optional(),
  concurrencyKey: z.string().optional(),
  get children() {
    return z.array(jobSchema).optional()
  },
}) as unknown as z.ZodType<NewJob>

/**
 * A job, with its children if it has any, from a JSON file.
 *
 * @param file path; `-` is standard input.
 * @throws {CliError} when it cannot be read or is not a job.
 */
export async function readJobFile(file: string): Promise<NewJob> {
  const content = await (file === '-' ? text(process.stdin) : readFile(file, 'utf8')).catch((error: Error) => {
    throw new CliError(`The job cannot be read: ${error.message}`, { cause: error })
  })
  const name = file === '-' ? 'Standard input' : file
  const parsed = jobSchema.safeParse(parseJsonText(content, name))
  if (parsed.success) return parsed.data
  const issues = parsed.error.issues.map(({ path, message }) => `  ${path.join('.') || 'the job'}: ${message}`)
  throw new CliError(`${name} is not a job:\n${issues.join('\n')}`)
}

/**
 * Parses what a user gave as JSON.
 *
 * @param name what to call it in the message.
 * @throws {CliError} when it is not JSON.
 */
export function parseJsonText(json: string, name: string): unknown {
  try {
    return JSON.parse(json)
  } catch (error) {
    throw new CliError(`${name} is not JSON: ${(error as Error).message}`, { cause: error, exitCode: 2 })
  }
}
