import { PermanentError } from '../src/index.ts'

/**
 * Waits for something read from disk. What the system forbids to read is a failure of its own, PARSE, which no retry
 * helps: the input is not wrong, and it is there.
 */
export async function readable<T>(reading: Promise<T>): Promise<T> {
  try {
    return await reading
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'EACCES' || code === 'EPERM') throw new PermanentError(message, { code: 'PARSE', cause: error })
    throw error
  }
}
