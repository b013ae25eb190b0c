import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type AnyDefinition, defineJob } from '../../src/index.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { createTestEngine, type TestEngine } from '../support/engine.ts'
import { createGate } from '../support/gate.ts'
import { findViolations } from '../support/invariants.ts'
import { until } from '../support/until.ts'

let database: TestDatabase
const open: TestEngine[] = []

beforeAll(async () => {
  database = await createTestDatabase()
})
afterEach(async () => {
  await Promise.all(open.splice(0).map((one) => one.close()))
  expect(await findViolations(database.pool, { schema: database.schema })).toEqual([])
  // No worker's row outlives its worker, but as dead.
  const { rows } = await database.pool.query(`select * from ${database.schema}.worker where dead_at is null`)
  expect(rows).toEqual([])
})
afterAll(async () => {
  await database.drop()
})

async function engineWith(jobs: AnyDefinition[], options: Parameters<typeof createTestEngine>[0] = {}) {
  const one = await createTestEngine({ test: database, jobs, ...options })
  open.push(one)
  return one
}

const named = (what: string) => `${what}-${randomUUID()}`
const deadline = { timeoutMs: 30_000 }

describe('stopping (case 42)', () => {
  test('handlers that end within the grace complete; nothing more is claimed; the worker is marked as stopping', async () => {
    const running = createGate()
    const goOn = createGate()
    const job = defineJob(
      { type: named('short') },
      {
        async run(ctx) {
          running.open()
          await goOn.opened
          return ctx.signal.aborted
        },
      },
    )
    const { engine } = await engineWith([job], { concurrency: 1 })
    const [first, second] = await engine.enqueueMany([job.with(), job.with()])
    await running.opened
    const stopped = engine.stop({ grace: 30_000 })
    expect(engine.running).toBe(false)
    const stopping = async () =>
      (await database.pool.query(`select stopping from ${database.schema}.worker`)).rows[0]?.stopping === true
    await until(stopping)
    goOn.open()
    await stopped
    const { engine: reader } = await engineWith([], { start: false })
    expect(await reader.job(first!.id)).toMatchObject({ state: 'completed', result: false })
    expect(await reader.job(second!.id)).toMatchObject({ state: 'queued', attempt: 0 })
    await reader.cancelJob(second!.id)
  })

  test('the others are aborted and go back without a retry spent, and run to their end elsewhere', async () => {
    const reasons: string[] = []
    const running = createGate()
    const type = named('long')
    const job = defineJob(
      { type },
      {
        async run(ctx) {
          running.open()
          await new Promise((_, reject) =>
            ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason)),
          ).finally(() => reasons.push((ctx.signal.reason as { code: string }).code))
        },
      },
    )
    const { engine, events } = await engineWith([job])
    const handle = await engine.enqueue(job.with({}, { maxRetries: 0 }))
    await running.opened
    await engine.stop({ grace: 50 })
    expect(reasons).toEqual(['SHUTDOWN'])
    expect((await events(handle.id)).at(-1)).toMatchObject({ from: 'running', to: 'queued', reason: 'shutdown' })
    const { engine: next } = await engineWith([defineJob({ type }, { run: (ctx) => [ctx.attempt, ctx.retryCount] })])
    expect(await next.waitFor(handle.id, deadline)).toMatchObject({ state: 'completed', result: [2, 0] })
  })

  test('a handler that ignores its signal is put back, and what it comes to later is ignored', async () => {
    const running = createGate()
    const late = createGate()
    const ended = createGate()
    const type = named('deaf')
    const job = defineJob(
      { type },
      {
        async run(ctx) {
          running.open()
          await late.opened
          await ctx.save('late').catch(() => {})
          ctx.progress(100)
          ended.open()
          return 'too late'
        },
      },
    )
    const { engine } = await engineWith([job])
    const handle = await engine.enqueue(job.with())
    await running.opened
    await engine.stop({ grace: 0 })
    const { engine: reader, events } = await engineWith([], { start: false })
    expect(await reader.job(handle.id)).toMatchObject({ state: 'queued', retryCount: 0 })
    const before = await events(handle.id)
    late.open()
    await ended.opened
    const { engine: next } = await engineWith([defineJob({ type }, { run: (ctx) => [ctx.attempt, ctx.saved] })])
    expect(await next.waitFor(handle.id, deadline)).toMatchObject({ result: [2, null] })
    expect((await events(handle.id)).slice(0, before.length)).toEqual(before)
  })

  test('a handler that comes to a result when asked to end has ended', async () => {
    const running = createGate()
    const job = defineJob(
      { type: named('obedient') },
      {
        async run(ctx) {
          running.open()
          await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
          return 'what there is'
        },
      },
    )
    const { engine } = await engineWith([job])
    const handle = await engine.enqueue(job.with())
    await running.opened
    await engine.stop({ grace: 0 })
    const { engine: reader } = await engineWith([], { start: false })
    expect(await reader.job(handle.id)).toMatchObject({ state: 'completed', result: 'what there is' })
  })

  test('twice is once; after that nothing is taken', async () => {
    const { engine } = await engineWith([defineJob({ type: named('x') }, { run() {} })])
    const waited = engine.waitFor(randomUUID(), deadline).catch((error: unknown) => error)
    await Promise.all([engine.stop(), engine.stop()])
    expect(await waited).toMatchObject({ code: expect.stringMatching(/UNAVAILABLE|NOT_FOUND/) })
    await expect(engine.start()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  })

  test('while it starts: nothing is left behind', async () => {
    const { engine } = await engineWith([defineJob({ type: named('x') }, { run() {} })], { start: false })
    const started = engine.start().catch(() => {})
    await engine.stop()
    await started
  })

  test('starting twice is starting once', async () => {
    const { engine } = await engineWith([defineJob({ type: named('x') }, { run() {} })], { start: false })
    await Promise.all([engine.start(), engine.start()])
    await engine.start()
    expect((await database.pool.query(`select id from ${database.schema}.worker`)).rows).toHaveLength(1)
  })
})

describe('a worker whose row is marked dead', () => {
  test('aborts with LEASE_LOST, takes a new identity, and goes on; the job runs again', async () => {
    const reasons: string[] = []
    const running = createGate()
    const job = defineJob(
      { type: named('lost') },
      {
        backoff: { initial: 1 },
        async run(ctx) {
          if (ctx.attempt > 1) return [ctx.attempt, ctx.retryCount]
          running.open()
          await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
          reasons.push((ctx.signal.reason as { code: string }).code)
          return 'nobody’s'
        },
      },
    )
    const { engine, events } = await engineWith([job])
    const handle = await engine.enqueue(job.with())
    await running.opened
    const { rows } = await database.pool.query(
      `update ${database.schema}.worker set dead_at = now() where dead_at is null returning id`,
    )
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'completed', result: [2, 1] })
    expect(reasons).toEqual(['LEASE_LOST'])
    const log = await events(handle.id)
    expect(log.find((event) => event.detail?.error)?.detail.error.code).toBe('LEASE_LOST')
    expect(log.at(-1)!.actor).not.toBe(`WK_${rows[0].id}`)
  })
})

describe('claims that never arrived', () => {
  test('are found by the heartbeat and put back, without a retry spent', async () => {
    const job = defineJob({ type: named('ghost') }, { run: (ctx) => [ctx.attempt, ctx.retryCount] })
    const { engine, events } = await engineWith([job], { heartbeat: 200 })
    // As a claim leaves it whose answer was lost on the way: RUNNING for this worker, which knows nothing of it.
    const handle = await engine.enqueue(job.with({}, { runAt: new Date(Date.now() + 60_000) }))
    await database.pool.query(
      `with claimed as (
         update ${database.schema}.job set state = 'running', worker_id = (select id from ${database.schema}.worker where dead_at is null),
           claim_token = gen_random_uuid(), attempt = attempt + 1, version = version + 1, claimed_at = now()
         where id = $1 returning *)
       insert into ${database.schema}.job_event (kind, job_id, tree_id, type, "from", "to", phase, wave, attempt, version, actor)
       select 'moved', id, tree_id, type, 'queued', 'running', phase, wave, attempt, version, 'test' from claimed`,
      [handle.id],
    )
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'completed', result: [2, 0] })
    expect((await events(handle.id)).map((event) => event.reason)).toContain('claim lost on its way to the worker')
  })
})

describe('a schema that has become newer', () => {
  test('drains the worker and is fatal', async () => {
    const running = createGate()
    const goOn = createGate()
    const job = defineJob(
      { type: named('old') },
      {
        async run() {
          running.open()
          await goOn.opened
        },
      },
    )
    const own = await createTestDatabase()
    try {
      const { engine, fatal } = await engineWith([job], { test: own, heartbeat: 200, grace: 30_000 })
      const handle = await engine.enqueue(job.with())
      await running.opened
      await own.pool.query(`insert into ${own.schema}.migration (version, name, checksum) values (9999, 'later', '')`)
      await until(() => !engine.running)
      expect(fatal).toEqual([])
      goOn.open()
      await until(() => fatal.length === 1)
      expect(fatal[0]).toMatchObject({ code: 'SCHEMA_TOO_NEW' })
      const { rows } = await own.pool.query(`select state from ${own.schema}.job where id = $1`, [handle.id])
      expect(rows[0].state).toBe('completed')
    } finally {
      await open.pop()?.close()
      await own.drop()
    }
  })
})
