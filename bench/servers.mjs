import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { removeEmbeddedData } from '../dist/db/embedded/remove.js'
import { startEmbeddedServer } from '../dist/db/embedded/server.js'

/** Durable for everybody: what was answered as done survives a crash. */
const POSTGRES = { shared_buffers: '1GB' }

/**
 * Starts PostgreSQL and, where redis-server is installed, two Redis servers, all with their data in a folder of their
 * own that goes when they stop.
 */
export async function startServers({ redis: wantRedis = true, settings = {} } = {}) {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-bench-'))
  const postgres = await startEmbeddedServer({
    dataDir: folder,
    durable: true,
    settings: { ...POSTGRES, ...settings },
  })
  const redis = wantRedis && hasRedis() ? await startRedis(folder) : null
  return {
    redis: redis && { always: redis.always.port, everysec: redis.everysec.port },
    pid: postgres.pid,
    /** An empty database, in place of the last one of that name; its address. */
    async freshDatabase(name = 'bench') {
      await withClient(postgres.connectionString, async (client) => {
        await client.query(`drop database if exists ${name} with (force)`)
        await client.query(`create database ${name}`)
        await client.query('checkpoint')
      })
      const url = new URL(postgres.connectionString)
      url.pathname = `/${name}`
      return url.href
    },
    checkpoint: () => withClient(postgres.connectionString, (client) => client.query('checkpoint')),
    async versions() {
      const shown = await withClient(postgres.connectionString, (client) =>
        client.query(`select name, setting from pg_settings where name = any($1)`, [
          ['server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers'],
        ]),
      )
      const redisVersion = redis && spawnSync('redis-server', ['--version'], { encoding: 'utf8' }).stdout.trim()
      return { postgres: Object.fromEntries(shown.rows.map((row) => [row.name, row.setting])), redis: redisVersion }
    },
    async stop() {
      for (const { child } of Object.values(redis ?? {})) {
        child.kill()
        await once(child, 'exit')
      }
      await postgres.stop()
      await removeEmbeddedData(folder)
      await rm(folder, { recursive: true, force: true })
    },
  }
}

function hasRedis() {
  return spawnSync('redis-server', ['--version']).status === 0
}

async function startRedis(folder) {
  const one = async (appendfsync) => {
    const port = await freePort()
    const dir = await mkdtemp(path.join(folder, 'redis-'))
    const options = { port, bind: '127.0.0.1', dir, appendonly: 'yes', appendfsync, save: '' }
    const child = spawn(
      'redis-server',
      Object.entries(options).flatMap(([name, value]) => [`--${name}`, `${value}`]),
      {
        stdio: 'ignore',
      },
    )
    process.once('exit', () => child.kill())
    for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1))
    await accepts(port)
    return { child, port }
  }
  return { always: await one('always'), everysec: await one('everysec') }
}

async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  server.close()
  await once(server, 'close')
  return port
}

async function accepts(port) {
  for (const deadline = Date.now() + 10_000; ; ) {
    const socket = net.connect(port, '127.0.0.1')
    try {
      await once(socket, 'connect')
      return
    } catch (error) {
      if (Date.now() > deadline) throw error
      await sleep(50)
    } finally {
      socket.destroy()
    }
  }
}

async function withClient(connectionString, work) {
  const client = new pg.Client({ connectionString })
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}
