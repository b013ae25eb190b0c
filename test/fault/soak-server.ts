import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { removeEmbeddedData } from '../../src/db/embedded/remove.ts'
import { startEmbeddedServer } from '../../src/db/embedded/server.ts'
import { migrate } from '../../src/db/migrate.ts'

/** A server of the soak's own, migrated, which it may crash; durable, so that a crash costs nothing that was committed. */
export interface SoakServer {
  readonly connectionString: string
  /** Ends it in immediate mode and starts it again. */
  crash(): Promise<void>
  remove(): Promise<void>
}

export async function startSoakServer(): Promise<SoakServer> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-soak-'))
  const server = await startEmbeddedServer({ dataDir: folder, durable: true })
  const remove = async () => {
    await server.stop()
    await removeEmbeddedData(folder)
    await rm(folder, { recursive: true, force: true })
  }
  try {
    await migrate({ connectionString: server.connectionString, schema: 'coppice' })
  } catch (error) {
    await remove()
    throw error
  }
  return {
    connectionString: server.connectionString,
    async crash() {
      await server.kill()
      await server.restart()
    },
    remove,
  }
}
