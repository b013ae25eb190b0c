import { v7, validate } from 'uuid'
import { ValidationError } from './errors.ts'

/** Kinds of global ids, by prefix. */
export type IdPrefix = 'JB' | 'EV' | 'WK' | 'AS'

/** A new job id: UUIDv7, made where the job is enqueued, so that a whole tree can be written at once. */
export function newJobId(): string {
  return v7()
}

/** The form an id has outside the database: `JB_<uuid>`. */
export function formatId(prefix: IdPrefix, id: string): string {
  return `${prefix}_${id}`
}

/** `JB_<uuid>`: how logs, CLI and API name a job. */
export function formatJobId(id: string): string {
  return formatId('JB', id)
}

/**
 * The stored id of `JB_<uuid>` or of a bare UUID, in lower case.
 *
 * @throws {ValidationError} when it is neither.
 */
export function parseJobId(id: string): string {
  if (typeof id !== 'string')
    throw ValidationError.of('id', `Not a job id: ${typeof id}. Expected JB_<uuid> or a UUID.`)
  const bare = id.startsWith('JB_') ? id.slice(3) : id
  if (!validate(bare))
    throw ValidationError.of('id', `Not a job id: ${JSON.stringify(id)}. Expected JB_<uuid> or a UUID.`)
  return bare.toLowerCase()
}
