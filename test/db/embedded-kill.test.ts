import { spawn } from 'node:child_process'
import { chmod, mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { accountFor } from '../../src/db/embedded/account.ts'
import { removeEmbeddedData } from '../../src/db/embedded/remove.ts'
import { type EmbeddedServer, startEmbeddedServer } from '../../src/db/embedded/server.ts'
import { processesOn } from '../support/processes.ts'
import { queryOnce } from '../support/query.ts'
import { type Host, spawnHost } from '../support/spawn-host.ts'
import { until } from '../support/until.ts'

// How a server and its process end: every way but the friendly one, and several processes on one folder.

let dataDir: string
let hosts: Host[]
let servers: EmbeddedServer[]

beforeEach(async () => {
  dataDir = await realpath(await mkdtemp(path.join(os.tmpdir(), 'coppice-embedded-')))
  await chmod(dataDir, 0o711)
  hosts = []
  servers = []
})

afterEach(async () => {
  for (const server of servers) await server.stop()
  for (const host of hosts)
    if (host.process.exitCode === null && host.process.signalCode === null) await host.killHard()
  await allGone()
  await removeEmbeddedData(dataDir)
  await rm(dataDir, { recursive: true, force: true })
})

function host(): Host {
  const started = spawnHost(dataDir)
  hosts.push(started)
  return started
}

async function start(log: (line: string) => void = () => {}): Promise<EmbeddedServer> {
  const server = await startEmbeddedServer({ dataDir, log })
  servers.push(server)
  return server
}

/** Nothing works in the home of the server any more: no server, no supervisor. */
async function allGone(timeout = 5_000): Promise<void> {
  const home = path.join(dataDir, 'postgres')
  const gone = async () => (await processesOn(home)).length === 0
  await until(gone, { timeout, what: 'all processes of the server to be gone' })
}

const KEPT = 'select answer from kept'
const makeKept = (connectionString: string) => queryOnce(connectionString, 'create table kept as select 42 as answer')

test('a process killed with -9 leaves no server behind, and the folder starts again with its data', async () => {
  const owner = host()
  const { connectionString } = await owner.ready()
  await makeKept(connectionString)
  await owner.killHard()
  await allGone()
  const server = await start()
  expect(await queryOnce(server.connectionString, KEPT)).toEqual([{ answer: 42 }])
})

test('a start right after kill -9 waits for the old server to go', async () => {
  const owner = host()
  const old = await owner.ready()
  await makeKept(old.connectionString)
  await owner.killHard()
  const server = await start()
  await until(() => queryOnce(server.connectionString, KEPT), { what: 'the data' })
  await until(() => !server.joined && server.pid !== old.pid, { what: 'a server of our own' })
  expect(await queryOnce(server.connectionString, KEPT)).toEqual([{ answer: 42 }])
})

test('a process killed with -9 while it makes the database leaves nothing in the way', async () => {
  const owner = host()
  await until(() => owner.log.some((line) => line.startsWith('making a database')), { what: 'initdb to be under way' })
  await owner.killHard()
  const server = await start()
  expect(await queryOnce(server.connectionString, 'select 1 as one')).toEqual([{ one: 1 }])
})

test('Ctrl-C in the terminal reaches the process, not its server', async () => {
  const owner = host()
  const { connectionString, pid } = await owner.ready()
  // To the whole group, as a terminal does.
  process.kill(-owner.process.pid!, 'SIGINT')
  await until(() => owner.log.includes('got SIGINT'), { what: 'the signal to arrive' })
  expect(await queryOnce(connectionString, 'select 1 as one')).toEqual([{ one: 1 }])
  expect(await processesOn(path.join(dataDir, 'postgres'))).toContain(pid)
  await owner.finish()
  await allGone()
})

test('the server ends with its process even when the shell that supervises it was killed', async () => {
  const owner = host()
  const { connectionString, pid } = await owner.ready()
  await makeKept(connectionString)
  const supervisor = Number((await readFile(`/proc/${pid}/stat`, 'utf8')).split(' ')[3])
  expect(await processesOn(path.join(dataDir, 'postgres'))).toContain(supervisor)
  process.kill(supervisor, 'SIGKILL')
  await until(async () => !(await processesOn(dataDir)).includes(supervisor), { what: 'the shell to be gone' })
  expect(await queryOnce(connectionString, KEPT)).toEqual([{ answer: 42 }])
  await owner.killHard()
  await allGone()
})

test('the pid file of a server that was killed does not keep the next from starting', async () => {
  const owner = host()
  const { connectionString, pid } = await owner.ready()
  await makeKept(connectionString)
  owner.process.kill('SIGKILL')
  process.kill(pid, 'SIGKILL')
  await allGone()
  const pidFile = path.join(dataDir, 'postgres', 'data', 'postmaster.pid')
  expect(await readFile(pidFile, 'utf8')).toMatch(new RegExp(`^${pid}\n`))
  const server = await start()
  expect(await queryOnce(server.connectionString, KEPT)).toEqual([{ answer: 42 }])
})

test('nor does one whose number another process has by now', async () => {
  const owner = host()
  const { connectionString, pid } = await owner.ready()
  await makeKept(connectionString)
  owner.process.kill('SIGKILL')
  process.kill(pid, 'SIGKILL')
  await allGone()
  // The same account, which is what PostgreSQL goes by.
  const stranger = spawn('/bin/sleep', ['60'], { ...accountFor(), cwd: '/', stdio: 'ignore' })
  try {
    const pidFile = path.join(dataDir, 'postgres', 'data', 'postmaster.pid')
    const text = await readFile(pidFile, 'utf8')
    await writeFile(pidFile, text.replace(/^\d+/, String(stranger.pid)))
    const server = await start()
    expect(await queryOnce(server.connectionString, KEPT)).toEqual([{ answer: 42 }])
    expect(stranger.exitCode ?? stranger.signalCode).toBeNull()
  } finally {
    stranger.kill('SIGKILL')
  }
})

test('several starters of one new folder share one server; the joined leave it alone', async () => {
  const processes = [host(), host()]
  const here = await Promise.all([start(), start()])
  const there = await Promise.all(processes.map((one) => one.ready()))
  const all = [...here, ...there]
  expect(new Set(all.map((one) => one.connectionString)).size).toBe(1)
  expect(new Set(all.map((one) => one.pid)).size).toBe(1)
  expect(all.filter((one) => !one.joined)).toHaveLength(1)
  const { connectionString } = all[0]!

  // In this process one may be the owner; the others are joined and go first.
  for (const server of here) if (server.joined) await server.stop()
  for (const [index, one] of there.entries()) if (one.joined) await processes[index]!.finish()
  expect(await queryOnce(connectionString, 'select 1 as one')).toEqual([{ one: 1 }])

  for (const server of here) await server.stop()
  for (const [index, one] of there.entries()) if (!one.joined) await processes[index]!.finish()
  await allGone()
})

test('a joined process takes the server over when its owner goes', async () => {
  const owner = host()
  const { connectionString } = await owner.ready()
  await makeKept(connectionString)
  const log: string[] = []
  const server = await start((line) => log.push(line))
  expect(server).toMatchObject({ connectionString, joined: true })
  await expect(server.kill()).rejects.toMatchObject({ code: 'EMBEDDED_START' })
  await owner.killHard()
  await until(() => !server.joined, { what: 'the server to be our own' })
  expect(server.connectionString).toBe(connectionString)
  expect(await queryOnce(connectionString, KEPT)).toEqual([{ answer: 42 }])
  await server.stop()
  await allGone()
})
