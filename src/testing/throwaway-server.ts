import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { removeEmbeddedData } from '../db/embedded/remove.ts'
import { startEmbeddedServer } from '../db/embedded/server.ts'

/** An embedded PostgreSQL whose data are thrown away. */
export interface ThrowawayServer {
  readonly connectionString: string
  /** The last one to let go ends it, and removes its data. */
  release(): Promise<void>
}

interface Shared {
  readonly connectionString: string
  end(): Promise<void>
}

let shared: Promise<Shared> | undefined
let users = 0

/** The one server of this process; started for the first who asks. */
export async function throwawayServer(): Promise<ThrowawayServer> {
  users++
  shared ??= start()
  const mine = shared
  let released = false
  const release = async () => {
    if (released) return
    released = true
    users--
    if (users > 0) return
    shared = undefined
    await (await mine).end()
  }
  try {
    return { connectionString: (await mine).connectionString, release }
  } catch (error) {
    users--
    if (shared === mine) shared = undefined
    throw error
  }
}

async function start(): Promise<Shared> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-testing-'))
  const remove = async () => {
    await removeEmbeddedData(folder)
    await rm(folder, { recursive: true, force: true })
  }
  try {
    const server = await startEmbeddedServer({ dataDir: folder, durable: false })
    const end = async () => {
      await server.stop()
      await remove()
    }
    return { connectionString: server.connectionString, end }
  } catch (error) {
    await remove().catch(() => {})
    throw error
  }
}
