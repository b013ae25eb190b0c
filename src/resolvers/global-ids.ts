import { validate } from 'uuid'
import { formatId, type IdPrefix } from '../engine/ids.ts'
import { isEventNumber } from '../engine/reads/cursor.ts'
import { BadRequestError } from './bad-request.ts'

/** Global ids of jobs: `JB_<uuid>`. Null stays null. */
export function jobGlobalId(id: string): string
export function jobGlobalId(id: string | null): string | null
export function jobGlobalId(id: string | null): string | null {
  return id === null ? null : formatId('JB', id)
}

/** Global id of an assignee: `AS_<id>`. Null stays null. */
export function assigneeGlobalId(id: string | null): string | null {
  return id === null ? null : formatId('AS', id)
}

/**
 * The stored id of `JB_<uuid>` or of a bare UUID.
 *
 * @throws {BadRequestError} it is neither
 */
export function jobIdArg(id: string): string {
  const bare = withoutPrefix('JB', id)
  if (validate(bare)) return bare.toLowerCase()
  throw new BadRequestError(`Not a job id: ${quoted(id)}. Expected JB_<uuid> or a UUID.`)
}

/** As {@link jobIdArg} for a list. */
export function jobIdArgs(ids: readonly string[]): string[] {
  return ids.map(jobIdArg)
}

/**
 * The stored id of `AS_<your id>` or of your id itself.
 *
 * @throws {BadRequestError} it is empty
 */
export function assigneeIdArg(id: string): string {
  const bare = withoutPrefix('AS', id)
  if (bare !== '') return bare
  throw new BadRequestError('An assignee id must not be empty.')
}

/**
 * The stored id of `WK_<uuid>` or of a bare UUID.
 *
 * @throws {BadRequestError} it is neither
 */
export function workerIdArg(id: string): string {
  const bare = withoutPrefix('WK', id)
  if (validate(bare)) return bare.toLowerCase()
  throw new BadRequestError(`Not a worker id: ${quoted(id)}. Expected WK_<uuid> or a UUID.`)
}

/** What a global id names. */
export interface GlobalId {
  prefix: IdPrefix
  /** Stored id. */
  id: string
}

/**
 * Reads a global id of any type.
 *
 * @throws {BadRequestError} it has no known prefix, or what follows is no id of that type
 */
export function parseGlobalId(globalId: string): GlobalId {
  const prefix = globalId.slice(0, 2)
  const id = globalId.slice(3)
  if (globalId[2] === '_') {
    if ((prefix === 'JB' || prefix === 'WK') && validate(id)) return { prefix, id: id.toLowerCase() }
    if (prefix === 'EV' && isEventNumber(id)) return { prefix, id }
    if (prefix === 'AS' && id !== '') return { prefix, id }
  }
  throw new BadRequestError(
    `Not a global id: ${quoted(globalId)}. Expected JB_<uuid>, EV_<number>, WK_<uuid> or AS_<id>.`,
  )
}

function withoutPrefix(prefix: IdPrefix, id: string): string {
  return id.startsWith(`${prefix}_`) ? id.slice(3) : id
}

function quoted(text: string): string {
  return JSON.stringify(text.length > 100 ? `${text.slice(0, 100)}…` : text)
}
