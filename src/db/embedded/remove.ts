import { readdir, realpath, rm, rmdir } from 'node:fs/promises'
import path from 'node:path'
import { EmbeddedDataError } from './errors.ts'
import { isServerOn, readPidFile } from './pid-file.ts'

/**
 * Removes the embedded database of a data folder for good, wherever it is kept, and the folder too if nothing else is
 * in it. Does nothing when there is none.
 * @throws EmbeddedDataError when a server still runs on it
 */
export async function removeEmbeddedData(dataDir: string): Promise<void> {
  const link = path.join(path.resolve(dataDir), 'postgres')
  const home = await realpath(link).catch(() => undefined)
  if (home !== undefined) {
    const data = path.join(home, 'data')
    const server = await readPidFile(data)
    if (server !== undefined && (await isServerOn(data, server.pid))) {
      throw new EmbeddedDataError(`A server still runs on ${data}: stop it before its data are removed.`)
    }
    await rm(home, { recursive: true, force: true })
  }
  await rm(link, { recursive: true, force: true })
  const rest = await readdir(dataDir).catch(() => ['unreadable'])
  if (rest.length === 0) await rmdir(dataDir)
}
