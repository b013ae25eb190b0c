import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { assertSchemaFits, latestVersion, type MigrateOptions, migrate, schemaVersion } from '../../src/db/migrate.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { until } from '../support/until.ts'

let database: TestDatabase
let directory: string
let schema: string
let count = 0

beforeAll(async () => {
  database = await createTestDatabase()
})

afterAll(() => database.drop())

beforeEach(async () => {
  directory = await mkdtemp(path.join(os.tmpdir(), 'coppice-migrations-'))
  schema = `app_${count++}`
})

afterEach(() => rm(directory, { recursive: true, force: true }))

const file = (name: string, sql: string) => writeFile(path.join(directory, name), sql)
const run = (options: Partial<MigrateOptions> = {}) =>
  migrate({ connectionString: database.connectionString, schema, directory, ...options })

async function tablesOf(name: string): Promise<string[]> {
  const { rows } = await database.pool.query<{ tablename: string }>(
    'select tablename from pg_tables where schemaname = $1 order by 1',
    [name],
  )
  return rows.map((row) => row.tablename)
}

test('missing migrations are applied in order, once, into the schema', async () => {
  await file('0001_fruit.sql', 'create table fruit (name text); insert into fruit values ($$apple; pear$$);')
  await file('0002_more.sql', 'alter table fruit add price int; create index on fruit (price);')
  const lines: string[] = []
  expect(await run({ log: (line) => lines.push(line) })).toEqual({
    from: 0,
    to: 2,
    applied: ['0001_fruit', '0002_more'],
  })
  expect(lines).toEqual([`schema "${schema}": applied 0001_fruit`, `schema "${schema}": applied 0002_more`])
  expect(await tablesOf(schema)).toEqual(['fruit', 'migration'])
  expect(await run()).toEqual({ from: 2, to: 2, applied: [] })

  await file('0003_seed.sql', `insert into fruit values ('plum', 3);`)
  expect(await run()).toEqual({ from: 2, to: 3, applied: ['0003_seed'] })
  const { rows } = await database.pool.query(`select name, price from ${schema}.fruit order by name`)
  expect(rows).toEqual([
    { name: 'apple; pear', price: null },
    { name: 'plum', price: 3 },
  ])
  const recorded = await database.pool.query(
    `select version, name, length(checksum) as length, applied_at <= now() as past from ${schema}.migration order by 1`,
  )
  expect(recorded.rows).toEqual([
    { version: 1, name: '0001_fruit', length: 64, past: true },
    { version: 2, name: '0002_more', length: 64, past: true },
    { version: 3, name: '0003_seed', length: 64, past: true },
  ])
})

test('many processes at once do no harm: one of them applies', async () => {
  await file('0001_a.sql', 'create table a (v int); insert into a values (1);')
  await file('0002_b.sql', 'select pg_sleep(0.2); insert into a values (2);')
  const results = await Promise.all(Array.from({ length: 6 }, () => run()))
  expect(results.map((result) => result.applied.length).sort()).toEqual([0, 0, 0, 0, 0, 2])
  const { rows } = await database.pool.query(`select v from ${schema}.a order by v`)
  expect(rows).toEqual([{ v: 1 }, { v: 2 }])
})

test('a failing migration takes everything of its run back', async () => {
  await file('0001_a.sql', 'create table a (v int)')
  await file('0002_b.sql', 'create table b (v int); select 1 / 0;')
  const failure = run()
  await expect(failure).rejects.toMatchObject({ code: 'MIGRATION_FAILED', migration: '0002_b' })
  await expect(failure).rejects.toThrow(/0002_b failed and was rolled back: division by zero/)
  expect(await tablesOf(schema)).toEqual([])
  await file('0002_b.sql', 'create table b (v int)')
  expect((await run()).applied).toEqual(['0001_a', '0002_b'])
})

test('a schema newer than the program is refused, with both versions', async () => {
  await file('0001_a.sql', 'create table a (v int)')
  await file('0002_b.sql', 'create table b (v int)')
  await run()
  await rm(path.join(directory, '0002_b.sql'))
  for (const refused of [() => run(), () => assertSchemaFits(database.pool, schema, directory)]) {
    await expect(refused()).rejects.toMatchObject({ code: 'SCHEMA_TOO_NEW', found: 2, known: 1 })
    await expect(refused()).rejects.toThrow(/is at version 2, but this program knows versions up to 1 only/)
  }
})

test('a migration that changed after it was applied is refused, one whose line ends changed is not', async () => {
  await file('0001_a.sql', 'create table a\n(v int)')
  await file('0002_b.sql', 'create table b (v int)')
  await run()
  await file('0001_a.sql', 'create table a\r\n(v int)')
  expect((await run()).applied).toEqual([])
  await file('0001_a.sql', 'create table a\n(v bigint)')
  await file('0003_c.sql', 'create table c (v int)')
  await expect(run()).rejects.toMatchObject({ code: 'MIGRATION_CHANGED', migrations: ['0001_a'] })
  expect(await tablesOf(schema)).toEqual(['a', 'b', 'migration'])
})

test.each([[['0002_a.sql']], [['0001_a.sql', '0003_b.sql']], [['0001_a.sql', '0001_b.sql']], [['1_a.sql']]])(
  'files %j are refused',
  async (names) => {
    for (const name of names) await file(name, 'select 1')
    await expect(run()).rejects.toMatchObject({ code: 'MIGRATION_FILES' })
  },
)

test.each(['', '1a', 'a b', 'a"b', 'pg_mine', 'information_schema', 'é', 'a'.repeat(64)])(
  'schema name %j is refused',
  async (name) => {
    await expect(run({ schema: name })).rejects.toMatchObject({ code: 'SCHEMA_NAME' })
    await expect(schemaVersion(database.pool, name)).rejects.toMatchObject({ code: 'SCHEMA_NAME' })
  },
)

test('a name that needs quotes and is as long as may be works', async () => {
  const name = `Select_${'x'.repeat(56)}`
  await file('0001_a.sql', 'create table a (v int)')
  await run({ schema: name })
  expect(await tablesOf(name)).toEqual(['a', 'migration'])
  expect(await schemaVersion(database.pool, name)).toBe(1)
})

test('a lock that outlasts its timeout is waited for by trying again', async () => {
  await file('0001_a.sql', 'create table a (v int)')
  await run()
  await file('0002_b.sql', 'alter table a add w int')
  const reader = await database.pool.connect()
  try {
    await reader.query(`begin; lock table ${schema}.a in access share mode`)
    const lines: string[] = []
    const result = run({ log: (line) => lines.push(line) })
    await until(() => lines.some((line) => line.includes('has to wait')), { timeout: 20_000, what: 'a lock timeout' })
    await reader.query('commit')
    expect((await result).applied).toEqual(['0002_b'])
  } finally {
    reader.release()
  }
})

test('the deadline ends the waiting, with the error of the database', async () => {
  await file('0001_a.sql', 'create table a (v int)')
  await run()
  await file('0002_b.sql', 'alter table a add w int')
  const reader = await database.pool.connect()
  try {
    await reader.query(`begin; lock table ${schema}.a in access share mode`)
    await expect(run({ deadlineMs: 1 })).rejects.toMatchObject({ code: '55P03' })
    expect(await schemaVersion(database.pool, schema)).toBe(1)
  } finally {
    await reader.query('rollback')
    reader.release()
  }
})

test('a role that may not create schemas can migrate one that is there', async () => {
  await file('0001_a.sql', 'create table a (v int)')
  const role = `role_${schema}_${process.pid}`
  await database.pool.query(
    `create role ${role} login password 'secret'; create schema ${schema} authorization ${role}`,
  )
  try {
    const url = new URL(database.connectionString)
    url.username = role
    url.password = 'secret'
    expect((await run({ connectionString: url.href })).applied).toEqual(['0001_a'])
  } finally {
    await database.pool.query(`drop owned by ${role}; drop role ${role}`)
  }
})

test('settings and locks do not outlive the transaction, as a transaction pooler needs it', async () => {
  await file('0001_a.sql', 'create table a (v int)')
  // What is sent: a pooler may give each statement outside the transaction to another server connection.
  const seen: string[] = []
  const query = pg.Client.prototype.query
  pg.Client.prototype.query = function (this: pg.Client, ...args: unknown[]) {
    seen.push(String(args[0]).trim())
    return Reflect.apply(query, this, args)
  } as typeof query
  try {
    await run()
  } finally {
    pg.Client.prototype.query = query
  }
  const begin = seen.findIndex((sql) => sql.startsWith('begin'))
  expect(seen.slice(0, begin).filter((sql) => !sql.startsWith('select current_setting'))).toEqual([])
  expect(seen.filter((sql) => /^set (?!local)/i.test(sql))).toEqual([])
  expect(seen.filter((sql) => /pg_(try_)?advisory_lock/.test(sql))).toEqual([])
  expect(seen.at(-1)).toBe('commit')
})

test('a server older than 14 is refused', async () => {
  await file('0001_a.sql', 'create table a (v int)')
  // A server of today that gives an old version, by a function found before its own.
  await database.pool.query(`
    create schema old_server;
    create function old_server.current_setting(name text) returns text language sql as
      $$ select case name when 'server_version_num' then '130014' else '13.14' end $$`)
  const url = new URL(database.connectionString)
  url.searchParams.set('options', '-c search_path=old_server,pg_catalog')
  const failure = run({ connectionString: url.href })
  await expect(failure).rejects.toMatchObject({ code: 'SERVER_TOO_OLD' })
  await expect(failure).rejects.toThrow('The server runs PostgreSQL 13.14; version 14 or later is needed.')
  expect(await tablesOf(schema)).toEqual([])
})

test('programs that only connect ask for exactly their version', async () => {
  await file('0001_a.sql', 'create table a (v int)')
  const fits = () => assertSchemaFits(database.pool, schema, directory)
  expect(await schemaVersion(database.pool, schema)).toBe(0)
  await expect(fits()).rejects.toThrow(/has not been set up, but this program needs version 1\. Run: coppice migrate/)
  await run()
  await fits()
  await file('0002_b.sql', 'create table b (v int)')
  await expect(fits()).rejects.toMatchObject({ code: 'SCHEMA_TOO_OLD', found: 1, needed: 2 })
})

test("Coppice's own migrations fit the test databases, and work in a schema of another name", async () => {
  const latest = await latestVersion()
  expect(latest).toBeGreaterThan(0)
  await assertSchemaFits(database.pool, database.schema)
  const { connectionString } = database
  expect(await migrate({ connectionString, schema: 'Elsewhere' })).toMatchObject({ from: 0, to: latest })
  expect(await tablesOf('Elsewhere')).toEqual(await tablesOf(database.schema))
})
