import { chmod, lstat, mkdtemp, realpath, rm, stat } from 'node:fs/promises'
import { createServer } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { accountFor } from '../../src/db/embedded/account.ts'
import { removeEmbeddedData } from '../../src/db/embedded/remove.ts'
import { type EmbeddedOptions, type EmbeddedServer, startEmbeddedServer } from '../../src/db/embedded/server.ts'
import { processesOn } from '../support/processes.ts'
import { queryOnce } from '../support/query.ts'
import { until } from '../support/until.ts'

let root: string
let dataDir: string
let servers: EmbeddedServer[]

beforeEach(async () => {
  root = await realpath(await mkdtemp(path.join(os.tmpdir(), 'coppice-embedded-')))
  await chmod(root, 0o711)
  dataDir = path.join(root, 'data')
  servers = []
})

afterEach(async () => {
  for (const server of servers) await server.stop()
  await removeEmbeddedData(dataDir)
  await rm(root, { recursive: true, force: true })
})

async function start(options: Partial<EmbeddedOptions> = {}): Promise<EmbeddedServer> {
  const server = await startEmbeddedServer({ dataDir, ...options })
  servers.push(server)
  return server
}

async function settingsOf(server: EmbeddedServer, ...names: string[]): Promise<Record<string, string>> {
  const rows = await queryOnce<{ name: string; setting: string }>(
    server.connectionString,
    'select name, setting from pg_settings',
  )
  return Object.fromEntries(rows.filter(({ name }) => names.includes(name)).map(({ name, setting }) => [name, setting]))
}

test('data survive from one run to the next, and stop leaves no process', async () => {
  const first = await start()
  await queryOnce(first.connectionString, 'create table kept as select 42 as answer')
  // The postmaster, its children, and the supervisor with its watcher.
  const home = await realpath(path.join(dataDir, 'postgres'))
  expect(await processesOn(home)).toContain(first.pid)
  await first.stop()
  await until(async () => (await processesOn(home)).length === 0, { what: 'all processes of the server to be gone' })
  await first.stop()

  const second = await start()
  expect(second.connectionString.split('@')[0]).toBe(first.connectionString.split('@')[0])
  expect(await queryOnce(second.connectionString, 'select answer from kept')).toEqual([{ answer: 42 }])
})

test('it listens on 127.0.0.1 only, asks for the password and keeps it to its user', async () => {
  const server = await start()
  const wrong = server.connectionString.replace(/:[0-9a-f]+@/, ':wrong@')
  await expect(queryOnce(wrong, 'select 1')).rejects.toMatchObject({ code: '28P01' })
  expect(await settingsOf(server, 'listen_addresses', 'unix_socket_directories')).toEqual({
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
  })
  expect((await stat(path.join(dataDir, 'postgres', 'password'))).mode & 0o777).toBe(0o600)
  expect((await stat(path.join(dataDir, 'postgres', 'data'))).mode & 0o777).toBe(0o700)
})

test('it never runs as root', async () => {
  const server = await start()
  const expected = accountFor().uid ?? process.getuid!()
  expect(expected).not.toBe(0)
  expect((await stat(`/proc/${server.pid}`)).uid).toBe(expected)
  expect((await stat(path.join(dataDir, 'postgres', 'data'))).uid).toBe(expected)
})

test('it is durable unless told otherwise, and settings can be given', async () => {
  const names = ['fsync', 'synchronous_commit', 'full_page_writes', 'work_mem', 'max_connections', 'TimeZone']
  const durable = await start({ settings: { work_mem: '7MB' } })
  expect(await settingsOf(durable, ...names)).toEqual({
    fsync: 'on',
    synchronous_commit: 'on',
    full_page_writes: 'on',
    work_mem: '7168',
    max_connections: '200',
    TimeZone: 'UTC',
  })
  await durable.stop()
  const fast = await start({ durable: false })
  expect(await settingsOf(fast, 'fsync', 'synchronous_commit')).toEqual({ fsync: 'off', synchronous_commit: 'off' })
})

test('text is compared by code point, whatever locale the system has', async () => {
  const server = await start({ durable: false })
  const rows = await queryOnce<{ v: string }>(
    server.connectionString,
    `select v from unnest(array['b', 'ä', 'a', 'B', 'é']) v order by v`,
  )
  expect(rows.map(({ v }) => v)).toEqual(['B', 'a', 'b', 'ä', 'é'])
  expect(await queryOnce(server.connectionString, `select upper('ä') as v`)).toEqual([{ v: 'Ä' }])
})

test("the caller's PG variables do not reach the server", async () => {
  process.env.PGTZ = 'Asia/Tokyo'
  process.env.PGPORT = '1'
  process.env.PGDATESTYLE = 'German'
  try {
    const server = await start({ durable: false })
    const seen = await settingsOf(server, 'TimeZone', 'port')
    expect(seen).toEqual({ TimeZone: 'UTC', port: String(server.port) })
  } finally {
    delete process.env.PGTZ
    delete process.env.PGPORT
    delete process.env.PGDATESTYLE
  }
})

test('a port taken between choice and start is replaced by another', async () => {
  const stranger = createServer()
  try {
    const taken: number[] = []
    const server = await start({
      durable: false,
      log(line) {
        const port = Number(/^starting .*:(\d+)$/.exec(line)?.[1] ?? 0)
        if (port !== 0 && taken.length === 0) {
          taken.push(port)
          // Bound before this returns.
          stranger.listen(port, '127.0.0.1')
        }
      },
    })
    expect(taken).toHaveLength(1)
    expect(server.port).not.toBe(taken[0])
    expect(await queryOnce(server.connectionString, 'select 1 as one')).toEqual([{ one: 1 }])
  } finally {
    stranger.close()
  }
})

test('a port that was asked for and is taken is an error that says so', async () => {
  const stranger = createServer()
  const port = await new Promise<number>((resolve) => {
    stranger.listen(0, '127.0.0.1', () => resolve((stranger.address() as { port: number }).port))
  })
  try {
    const failure = start({ durable: false, port })
    await expect(failure).rejects.toMatchObject({ code: 'EMBEDDED_START' })
    await expect(failure).rejects.toThrow(/Address already in use/)
  } finally {
    stranger.close()
  }
})

test('restart and kill keep address and committed data', async () => {
  const server = await start()
  const { connectionString, port } = server
  await queryOnce(connectionString, 'create table kept (v int)')
  await queryOnce(connectionString, 'insert into kept values (1)')
  await server.restart()
  await queryOnce(connectionString, 'insert into kept values (2)')
  await server.kill()
  await expect(queryOnce(connectionString, 'select 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' })
  await server.restart()
  expect(await queryOnce(connectionString, 'select v from kept order by v')).toEqual([{ v: 1 }, { v: 2 }])
  expect(server).toMatchObject({ connectionString, port, joined: false })
})

test('a server that dies by itself is brought back at the same address', async () => {
  const log: string[] = []
  const server = await start({ log: (line) => log.push(line) })
  await queryOnce(server.connectionString, 'create table kept as select 42 as answer')
  const { pid } = server
  process.kill(pid, 'SIGKILL')
  await until(() => server.pid !== pid, { what: 'another server' })
  expect(await queryOnce(server.connectionString, 'select answer from kept')).toEqual([{ answer: 42 }])
  expect(log).toContain('PostgreSQL is gone; bringing it back')
})

test('a data folder below a closed one is served, and its database removed', async () => {
  // To the account of PostgreSQL too when we are root.
  await chmod(root, 0o700)
  const server = await start({ durable: false })
  const link = path.join(dataDir, 'postgres')
  const home = await realpath(link)
  expect((await lstat(link)).isSymbolicLink()).toBe(process.getuid!() === 0)
  expect(await queryOnce(server.connectionString, 'select 1 as one')).toEqual([{ one: 1 }])
  await expect(removeEmbeddedData(dataDir)).rejects.toMatchObject({ code: 'EMBEDDED_DATA' })
  await server.stop()
  await removeEmbeddedData(dataDir)
  await expect(stat(home)).rejects.toMatchObject({ code: 'ENOENT' })
  await expect(stat(dataDir)).rejects.toMatchObject({ code: 'ENOENT' })
})
