import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { coppice, coppiceHere, envOf } from './run.ts'

describe('a command that cannot be carried out says why, without a stack', { timeout: 120_000 }, () => {
  let database: TestDatabase
  let newer: TestDatabase
  let folder: string
  beforeAll(async () => {
    ;[database, newer] = await Promise.all([createTestDatabase(), createTestDatabase()])
    await newer.pool.query(
      `insert into ${newer.schema}.migration (version, name, checksum) select 900 + v, 'future', 'x' from generate_series(1, 9) v`,
    )
    folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-errors-'))
    await writeFile(path.join(folder, 'none.mjs'), 'export const jobs = []')
    await writeFile(path.join(folder, 'tree.json'), '{"type":"noop","childen":[]}')
  })
  afterAll(async () => {
    await Promise.all([database.drop(), newer.drop()])
    await rm(folder, { recursive: true, force: true })
  })

  async function fails(args: string[], env: Record<string, string>, code: number, message: RegExp): Promise<void> {
    const ended = await coppiceHere(args, { COPPICE_LOG_LEVEL: 'error', ...env })
    expect(ended).toMatchObject({ code, stdout: '' })
    expect(ended.stderr).toMatch(message)
    expect(ended.stderr).not.toMatch(/^\s+at /m)
  }

  test('with the exit code of the process', async () => {
    const ended = await coppice(['work', '--jobs', 'nowhere.ts'])
    expect(ended).toMatchObject({ code: 1, signal: null, stdout: '' })
    expect(ended.stderr).toMatch(/^There is no module of jobs at .*nowhere\.ts\.\n$/)
    expect(await coppice(['work'])).toMatchObject({ code: 2, signal: null, stdout: '' })
  })

  test('an unknown command, flag or argument', async () => {
    await fails(['serv'], {}, 2, /unknown command 'serv'/)
    await fails(['serve', '--prot', '1'], {}, 2, /unknown option '--prot'/)
    await fails(['enqueue'], {}, 2, /Give the TYPE of the job, or a --file/)
    await fails(['tree', 'JB_7'], envOf(database), 1, /Not a job id: "JB_7"/)
  })

  test('with --json, as JSON with a code', async () => {
    const failure = async (args: string[], code: number) => {
      const ended = await coppiceHere([...args, '--json'], { COPPICE_LOG_LEVEL: 'error', ...envOf(database) })
      expect(ended).toMatchObject({ code, stdout: '' })
      return JSON.parse(ended.stderr).error
    }
    const nobody = 'JB_00000000-0000-7000-8000-000000000000'
    for (const command of ['explain', 'tree', 'cancel']) {
      expect(await failure([command, nobody], 1)).toEqual({ code: 'NOT_FOUND', message: `There is no job ${nobody}.` })
    }
    expect(await failure(['pause', 'JB_7'], 1)).toMatchObject({
      code: 'VALIDATION',
      issues: [{ path: ['id'], message: expect.stringContaining('Not a job id') }],
    })
    expect(await failure(['enqueue'], 2)).toMatchObject({
      code: 'USAGE',
      message: expect.stringMatching(/^Give the TYPE/),
    })
    expect(await failure(['stuck', '--prot', '1'], 2)).toEqual({ code: 'USAGE', message: "unknown option '--prot'" })
    expect(await failure(['serve', '--port', '70000'], 2)).toMatchObject({ code: expect.any(String) })
    expect(await failure(['stuck', '--database-url', 'postgres://nobody@127.0.0.1:1/none'], 1)).toMatchObject({
      code: 'UNAVAILABLE',
    })
  })

  test('wrong settings, all of them at once', async () => {
    await fails(
      ['serve', '--port', '70000'],
      { COPPICE_GRACE: 'soon' },
      2,
      /--port is "70000"[\s\S]*COPPICE_GRACE is "soon"/,
    )
  })

  test('a module that is not there, or has no jobs', async () => {
    await fails(['work', '--jobs', 'nowhere.ts'], {}, 1, /There is no module of jobs at .*nowhere\.ts/)
    await fails(['serve', '--jobs', path.join(folder, 'none.mjs')], {}, 1, /none\.mjs exports no job definitions/)
  })

  test('a database that is not there, or says no', async () => {
    const away = { DATABASE_URL: 'postgresql://user:secret@127.0.0.1:1/none' }
    await fails(['serve'], away, 1, /The database cannot be reached: .*ECONNREFUSED/)
    await fails(['enqueue', 'noop'], away, 1, /The database cannot be reached: .*ECONNREFUSED/)
    const url = new URL(database.connectionString)
    url.pathname = '/no_such_database'
    await fails(['migrate'], { DATABASE_URL: url.href }, 1, /The database refuses: .*"no_such_database" does not exist/)
  })

  test('a schema that is newer than the program, or was never set up', async () => {
    for (const args of [['serve'], ['migrate'], ['enqueue', 'noop']]) {
      await fails(args, envOf(newer), 1, /is at version 909, but this program knows versions up to \d+ only/)
    }
    const empty = { ...envOf(database), COPPICE_SCHEMA: 'nothing_here' }
    await fails(['enqueue', 'noop'], empty, 1, /has not been set up.* Run: coppice migrate/)
  })

  test('a port that is taken, a host that others could reach', async () => {
    const taken = createServer()
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve))
    const port = String((taken.address() as { port: number }).port)
    await fails(['serve', '--port', port], envOf(database), 1, new RegExp(`Port ${port} of 127.0.0.1 is taken`))
    taken.close()
    await fails(['serve', '--host', '0.0.0.0', '--port', '0'], envOf(database), 1, /HOST is 0\.0\.0\.0/)
  })

  test('a job that is none', async () => {
    await fails(['enqueue', 'noop', '--payload', '{'], {}, 2, /--payload is not JSON/)
    await fails(['enqueue', 'noop', '--priority', 'high'], {}, 2, /--priority is "high": expected a whole number/)
    await fails(['enqueue', 'noop', '--run-at', 'soon'], {}, 2, /--run-at is "soon": expected an instant/)
    await fails(['enqueue', '--file', path.join(folder, 'tree.json')], {}, 1, /is not a job:[\s\S]*childen/)
    await fails(['enqueue', '--file', path.join(folder, 'nowhere.json')], {}, 1, /cannot be read: ENOENT/)
    const known = ['--jobs', 'examples/index.ts', '--payload', '{}']
    await fails(['enqueue', 'digest-file', ...known], envOf(database), 1, /payload\.path: /)
  })

  test('a job that is not there', async () => {
    const id = 'JB_01a228df-db46-70df-8c4a-70142f3afd1f'
    await fails(['tree', id], envOf(database), 1, new RegExp(`There is no job ${id}`))
  })
})
