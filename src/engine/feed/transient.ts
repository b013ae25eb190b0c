import { isConnectionError } from '../../db/connection-errors.ts'
import { UnavailableError } from '../errors.ts'

/** Whether a read failed because the database was out of reach, so that it is worth trying again. */
export function isTransient(error: unknown): boolean {
  return error instanceof UnavailableError || isConnectionError(error)
}
