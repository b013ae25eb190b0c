import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { PermanentError } from '../src/index.ts'
import { readable } from './readable.ts'

// Without O_NONBLOCK, opening a pipe that nobody writes to waits for ever. Windows has no such flag.
const FLAGS = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0)

/**
 * Opens a regular file, hands it to `use` and closes it. A symbolic link is followed.
 *
 * @throws {PermanentError} VALIDATION if it is a folder, a pipe, a socket or a device.
 */
export async function withRegularFile<T>(
  path: Buffer,
  use: (file: FileHandle, size: number) => Promise<T>,
): Promise<T> {
  const file = await readable(open(path, FLAGS))
  try {
    const stat = await file.stat()
    if (!stat.isFile()) throw new PermanentError(`Not a regular file: ${path}`, { code: 'VALIDATION' })
    return await use(file, stat.size)
  } finally {
    await file.close()
  }
}
