import { isConnectionError } from '../../db/connection-errors.ts'

/**
 * Does something for each item, one after the other, until `signal` is aborted. One that fails keeps no other from its
 * turn: the first error is thrown at the end. Only when the database cannot be reached are the rest left.
 */
export async function each<T>(
  items: readonly T[],
  signal: AbortSignal,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const errors: unknown[] = []
  for (const item of items) {
    if (signal.aborted) break
    try {
      await work(item)
    } catch (error) {
      if (isConnectionError(error)) throw error
      errors.push(error)
    }
  }
  if (errors.length > 0) throw errors[0]
}
