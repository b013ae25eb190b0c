import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import { defineJob, RetryableError } from '../../src/index.ts'
import { type TestEngineOptions, testEngine } from '../../src/testing/index.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { createGate } from '../support/gate.ts'

let database: TestDatabase
beforeAll(async () => {
  database = await createTestDatabase()
})
afterAll(() => database.drop())

const here = (options: TestEngineOptions = {}) => ({ connectionString: database.connectionString, ...options })

const leaf = defineJob({ type: 'leaf' }, { run: () => 1 })
const tree = defineJob(
  { type: 'tree' },
  {
    ingest: (ctx) => ctx.spawn(Array.from({ length: 5 }, () => leaf.with())),
    aggregate: async (ctx) => (await ctx.childCounts()).completed,
  },
)
const unlucky = defineJob(
  { type: 'unlucky' },
  {
    run(ctx) {
      if (!ctx.lastAttempt) throw new RetryableError('not yet', { delay: '1h' })
      return ctx.retryCount
    },
  },
)

/** Schemas that test engines left. */
const schemas = async () =>
  (await database.pool.query(`select nspname from pg_namespace where nspname like 'coppice_test_%'`)).rows

describe('testEngine', () => {
  test('drains: runs what can run, to the end of every tree', async () => {
    await using engine = await testEngine([leaf, tree], here())
    const handle = await engine.enqueue(tree.with())
    expect(await engine.drain()).toMatchObject({ completed: 6, queued: 0, running: 0, waiting: 0, failed: 0 })
    expect(await engine.waitFor(handle)).toMatchObject({ state: 'completed', result: 5 })
    expect(await engine.drain()).toMatchObject({ completed: 6 })
  })

  test('leaves what waits for something else', async () => {
    await using engine = await testEngine([leaf], here({ queues: ['default'] }))
    await engine.setAssignee('ann', 'paused')
    await engine.enqueueMany([
      leaf.with({}, { runAt: new Date(Date.now() + 3_600_000) }),
      leaf.with({}, { assigneeId: 'ann' }),
      leaf.with({}, { queue: 'elsewhere' }),
      { type: 'unknown-here' },
      { type: 'unknown-here', children: [leaf.with()] },
    ])
    const paused = await engine.enqueue(leaf.with({}, { runAt: new Date(Date.now() + 3_600_000) }))
    await engine.pauseJob(paused.id)
    expect(await engine.drain()).toMatchObject({ queued: 4 + 1, paused: 1, completed: 1, waiting: 0 })
    // Skipping delays hurries only what this engine could run.
    expect(await engine.drain({ skipDelays: true })).toMatchObject({ queued: 4, paused: 1, completed: 2 })
  })

  test('jumps over delays and backoffs', async () => {
    await using engine = await testEngine([unlucky], here())
    const handle = await engine.enqueue(unlucky.with())
    expect(await engine.drain()).toMatchObject({ queued: 1 })
    expect(await engine.drain({ skipDelays: true })).toMatchObject({ completed: 1 })
    expect(await engine.waitFor(handle)).toMatchObject({ result: 2 })
  })

  test('a drain that takes too long says what is still going on', async () => {
    const gate = createGate()
    const hangs = defineJob({ type: 'hangs' }, { run: () => gate.opened })
    await using engine = await testEngine([hangs], here())
    const { id } = await engine.enqueue(hangs.with())
    await expect(engine.drain({ timeout: 300 })).rejects.toMatchObject({
      code: 'DRAIN_TIMEOUT',
      jobIds: [`JB_${id}`],
      message: expect.stringContaining('hangs'),
    })
    gate.open()
    expect(await engine.drain()).toMatchObject({ completed: 1 })
  })

  test('engines on one database do not see each other, and leave nothing', async () => {
    const [one, other] = await Promise.all([testEngine([leaf], here()), testEngine([leaf], here())])
    await one.enqueue(leaf.with())
    expect(await one.drain()).toMatchObject({ completed: 1 })
    expect(await other.drain()).toMatchObject({ completed: 0 })
    const { rows } = await database.pool.query(`select count(*)::int n from ${one.schema}.job`)
    expect(rows).toEqual([{ n: 1 }])
    expect(await schemas()).toHaveLength(2)
    await Promise.all([one.stop(), one.stop(), other.stop()])
    expect(await schemas()).toEqual([])
    await expect(one.start()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  })

  test('one that cannot start leaves nothing', async () => {
    await expect(testEngine([leaf, defineJob({ type: 'leaf' }, { run() {} })], here())).rejects.toMatchObject({
      code: 'VALIDATION',
    })
    await expect(testEngine([leaf], here({ concurrency: -1 }))).rejects.toMatchObject({ code: 'VALIDATION' })
    expect(await schemas()).toEqual([])
  })

  test('without a connection string: on an embedded server, shared, and gone with the last', async () => {
    const one = await testEngine([tree, leaf])
    const other = await testEngine([leaf])
    const { connectionString } = one
    expect(connectionString).toBe(other.connectionString)
    expect(connectionString).not.toBe(inject('testServer').connectionString)
    await one.enqueue(tree.with())
    expect(await one.drain()).toMatchObject({ completed: 6 })
    await one.stop()
    await other.enqueue(leaf.with())
    expect(await other.drain()).toMatchObject({ completed: 1 })
    await other.stop()
    const client = new pg.Client({ connectionString })
    await expect(client.connect()).rejects.toMatchObject({ code: 'ECONNREFUSED' })
    // Another one begins anew.
    await using third = await testEngine([leaf])
    await third.enqueue(leaf.with())
    expect(await third.drain()).toMatchObject({ completed: 1 })
  })
})
