import { CamelCasePlugin, Kysely, PostgresDialect } from 'kysely'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { defineJob, type UserTransaction } from '../../src/index.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()

let client: pg.Client
let kysely: Kysely<Record<string, never>>
beforeAll(async () => {
  client = new pg.Client({ connectionString: engines.database.connectionString })
  await client.connect()
  await client.query('create table orders (id text primary key)')
  const pool = new pg.Pool({ connectionString: engines.database.connectionString, max: 2 })
  // Its plugin renames columns of results: the engine's own statements must not meet it.
  kysely = new Kysely({ dialect: new PostgresDialect({ pool }), plugins: [new CamelCasePlugin()] })
})
afterAll(async () => {
  await client.end()
  await kysely.destroy()
})

/** Thrown to roll back. */
class Changed extends Error {}

type Transact = (work: (transaction: UserTransaction) => Promise<void>, end: 'commit' | 'rollback') => Promise<void>

const byPg: Transact = async (work, end) => {
  await client.query('begin')
  try {
    await work(client)
  } finally {
    await client.query(end)
  }
}
const byKysely: Transact = (work, end) =>
  kysely
    .transaction()
    .execute(async (transaction) => {
      await work(transaction)
      if (end === 'rollback') throw new Changed()
    })
    .catch((error) => {
      if (!(error instanceof Changed)) throw error
    })

const rows = async (type: string) => {
  const { rows } = await engines.database.pool.query(
    'select id, parent_id, tree_id, state, phase, wave, open_children from coppice.job where type like $1 order by depth, id',
    [`${type}%`],
  )
  return rows
}

describe.each([
  ['a client of pg', byPg],
  ['a Kysely transaction', byKysely],
])('enqueue in the user’s own transaction: %s', (_, transact) => {
  test('a whole tree is there after the commit, for nobody before, and is run then (case 45)', async () => {
    const type = named('tree')
    const ran: string[] = []
    const leaf = defineJob({ type: `${type}-leaf` }, { run: (ctx) => void ran.push(ctx.id) })
    const root = defineJob({ type }, { ingest() {}, aggregate: async (ctx) => (await ctx.childCounts()).completed })
    // The worker looks again and again while the transaction is open.
    const { engine } = await engines.engineWith([leaf, root], { poll: 10 })
    const other = await engines.engineWith([])
    let id = ''
    await transact(async (transaction) => {
      const handle = await engine.enqueue(
        root.with({}, { children: [leaf.with(), leaf.with(), { ...leaf.with(), children: [] }] }),
        { transaction },
      )
      id = handle.id
      expect(handle.deduplicated).toBe(false)
      expect(await rows(type)).toEqual([])
      expect(await other.engine.job(id)).toBeNull()
      const looked = await engines.database.pool.query('select beat from coppice.worker')
      await until(async () => {
        const now = await engines.database.pool.query('select beat from coppice.worker')
        return JSON.stringify(now.rows) !== JSON.stringify(looked.rows)
      })
      expect(ran).toEqual([])
    }, 'commit')
    engine.ring()
    const end = await engine.waitFor(id, deadline)
    expect(end).toMatchObject({ state: 'completed', result: 3 })
    expect(ran).toHaveLength(3)
    expect((await rows(type)).map((row) => row.tree_id)).toEqual([id, id, id, id])
  })

  test('a rollback leaves nothing: no jobs, no events, and the key free', async () => {
    const type = named('rolled-back')
    const { engine } = await engines.engineWith([], { start: false })
    const events = async () =>
      (await engines.database.pool.query('select count(*)::int n from coppice.job_event where type = $1', [type])).rows
    const job = { type, key: 'k', children: [{ type }] }
    await transact(async (transaction) => {
      await engine.enqueueMany([job, { type }], { transaction })
    }, 'rollback')
    expect(await rows(type)).toEqual([])
    expect(await events()).toEqual([{ n: 0 }])
    expect((await engine.enqueue(job)).deduplicated).toBe(false)
    expect(await events()).toEqual([{ n: 2 }])
  })

  test('keys deduplicate: against what is there, and within the transaction', async () => {
    const type = named('keyed')
    const { engine } = await engines.engineWith([], { start: false })
    const before = await engine.enqueue({ type, key: 'old' })
    const seen: unknown[] = []
    await transact(async (transaction) => {
      const [old, fresh, same] = await engine.enqueueMany(
        [
          { type, key: 'old', children: [{ type }] },
          { type, key: 'new' },
          { type, key: 'new' },
        ],
        { transaction },
      )
      const again = await engine.enqueue({ type, key: 'new' }, { transaction })
      seen.push(old, fresh, same, again)
    }, 'commit')
    const fresh = (seen[1] as { id: string }).id
    expect(seen).toEqual([
      { id: before.id, deduplicated: true },
      { id: fresh, deduplicated: false },
      { id: fresh, deduplicated: true },
      { id: fresh, deduplicated: true },
    ])
    expect(await rows(type)).toHaveLength(2)
  })

  test('a rival with the same key waits for the commit, and gets the job', async () => {
    const type = named('rival')
    const { engine } = await engines.engineWith([], { start: false })
    const ids: string[] = []
    let rival: Promise<{ id: string; deduplicated: boolean }> | undefined
    await transact(async (transaction) => {
      ids.push((await engine.enqueue({ type, key: 'k' }, { transaction })).id)
      rival = engine.enqueue({ type, key: 'k' })
      await until(async () => {
        const { rows } = await engines.database.pool.query(
          `select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%enqueue.insert-keyed-roots%'`,
        )
        return rows.length
      })
    }, 'commit')
    expect(await rival).toEqual({ id: ids[0], deduplicated: true })
  })

  test('a refused job writes nothing, and the transaction goes on', async () => {
    const type = named('refused')
    const { engine } = await engines.engineWith([], { start: false })
    await transact(async (transaction) => {
      await engine.enqueue({ type }, { transaction })
      await expect(engine.enqueue({ type, priority: 1.5 }, { transaction })).rejects.toMatchObject({
        code: 'VALIDATION',
        issues: [{ path: ['priority'] }],
      })
      await expect(engine.enqueueMany([], { transaction })).resolves.toEqual([])
    }, 'commit')
    expect(await rows(type)).toHaveLength(1)
  })
})

describe('what is no open transaction is refused, and nothing is written', () => {
  const refused = (message: string) => ({ code: 'VALIDATION', issues: [{ path: ['transaction'], message }] })

  test.each<[string, () => unknown, string]>([
    ['a client without BEGIN', () => client, 'has no transaction open: run BEGIN first'],
    ['a pool', () => engines.database.pool, 'is a pool: give the client that the transaction is open on'],
    ['a Kysely instance', () => kysely, 'is a Kysely instance: give the transaction'],
    ['something else', () => ({}), 'must be a client of pg or a Kysely transaction'],
  ])('%s', async (_, given, message) => {
    const type = named('none')
    const { engine } = await engines.engineWith([], { start: false })
    const transaction = given() as UserTransaction
    await expect(engine.enqueue({ type, children: [{ type }] }, { transaction })).rejects.toMatchObject(
      refused(message),
    )
    expect(await rows(type)).toEqual([])
  })

  test('one that has failed says so itself', async () => {
    const { engine } = await engines.engineWith([], { start: false })
    await client.query('begin')
    await client.query('select 1 / 0').catch(() => {})
    await expect(engine.enqueue({ type: 'x' }, { transaction: client })).rejects.toMatchObject({ code: '25P02' })
    await client.query('rollback')
  })
})

test('a conflict is not run again: it is the user’s, with its code (repeatable read)', async () => {
  const type = named('conflict')
  const { engine } = await engines.engineWith([], { start: false })
  await client.query('begin isolation level repeatable read')
  await client.query('select 1 from orders')
  // Committed after this snapshot: the key is taken by a row that the snapshot does not show.
  await engine.enqueue({ type, key: 'k' })
  await expect(engine.enqueue({ type, key: 'k' }, { transaction: client })).rejects.toMatchObject({ code: '40001' })
  await client.query('rollback')
  await client.query('begin isolation level repeatable read')
  expect(await engine.enqueue({ type, key: 'k' }, { transaction: client })).toMatchObject({ deduplicated: true })
  await client.query('commit')
})

test('the settings of the transaction stay the user’s, and its savepoints too', async () => {
  const { engine } = await engines.engineWith([], { start: false })
  const settings = async () =>
    (
      await client.query(
        `select name, setting from pg_settings where name in ('statement_timeout', 'lock_timeout', 'search_path',
          'synchronous_commit', 'idle_in_transaction_session_timeout', 'transaction_isolation') order by name`,
      )
    ).rows
  await client.query('begin')
  await client.query(`set local statement_timeout = '7s'`)
  const before = await settings()
  await client.query(`insert into orders values ('a'); savepoint coppice; insert into orders values ('b')`)
  await engine.enqueue({ type: named('settings') }, { transaction: client })
  expect(await settings()).toEqual(before)
  await client.query('rollback to savepoint coppice')
  await client.query('commit')
  expect((await client.query('select id from orders')).rows).toEqual([{ id: 'a' }])
})

test('after the commit, ring makes an idle worker look at once; without it, its poll finds the job', async () => {
  const job = defineJob({ type: named('rung') }, { run: () => 1 })
  await engines.engineWith([job], { poll: '10m' })
  const outside = await engines.engineWith([], { start: false })
  await client.query('begin')
  const { id } = await outside.engine.enqueue(job.with(), { transaction: client })
  await client.query('commit')
  outside.engine.ring()
  const state = async () => (await outside.engine.job(id))?.state
  await until(async () => (await state()) === 'completed')

  await engines.engineWith([job], { poll: 50, pollOnly: true })
  await client.query('begin')
  const polled = await outside.engine.enqueue(job.with(), { transaction: client })
  await client.query('commit')
  await until(async () => (await outside.engine.job(polled.id))?.state === 'completed')
})
