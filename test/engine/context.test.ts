import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { type AnyDefinition, declareJob, defineJob, LeaseLostError, PermanentError } from '../../src/index.ts'
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
})
afterAll(async () => {
  await database.drop()
})

async function engineWith(jobs: AnyDefinition[], options: Parameters<typeof createTestEngine>[0] = {}) {
  const one = await createTestEngine({ test: database, jobs, ...options })
  open.push(one)
  return one
}

/** Runs one job to its end. */
async function run(definition: AnyDefinition, others: AnyDefinition[] = []) {
  const one = await engineWith([definition, ...others])
  const handle = await one.engine.enqueue(definition.with())
  return { ...one, id: handle.id, end: await one.engine.waitFor(handle, deadline) }
}

const named = (what: string) => `${what}-${randomUUID()}`
const deadline = { timeoutMs: 30_000 }
const fast = { backoff: { initial: 1, cap: 5 }, maxRetries: 1 }

describe('ctx.spawn', () => {
  const leaf = defineJob(
    { type: named('leaf'), payload: z.object({ n: z.number() }), result: z.number() },
    {
      run: ({ payload }) => payload.n,
    },
  )

  test('returns the ids that the children will have', async () => {
    let ids: string[] = []
    const parent = defineJob(
      { type: named('parent') },
      {
        async ingest(ctx) {
          ids = [
            ...(await ctx.spawn([leaf.with({ n: 1 }), leaf.with({ n: 2 }, { key: 'k' })])),
            ...(await ctx.spawn([leaf.with({ n: 3 }, { key: 'k' }), leaf.with({ n: 4 })])),
          ]
        },
        async aggregate(ctx) {
          const seen: unknown[] = []
          for await (const child of ctx.children(leaf)) seen.push([child.id, child.key, child.payload.n, child.state])
          return seen
        },
      },
    )
    const { end } = await run(parent, [leaf])
    expect(ids).toEqual(ids.map(() => expect.stringMatching(/^JB_[0-9a-f-]{36}$/)))
    // The third has the key of the second: it is the second.
    expect(ids[2]).toBe(ids[1])
    expect(end).toMatchObject({
      result: [
        [ids[0], null, 1, 'completed'],
        [ids[1], 'k', 2, 'completed'],
        [ids[3], null, 4, 'completed'],
      ],
    })
  })

  test('of a key that an earlier wave has taken, returns that child', async () => {
    const parent = defineJob(
      { type: named('keyed') },
      {
        async ingest(ctx) {
          await ctx.save(await ctx.spawn([leaf.with({ n: 1 }, { key: 'k' })]))
        },
        async aggregate(ctx) {
          if (ctx.wave === 1) {
            const ids = await ctx.spawn([leaf.with({ n: 2 }, { key: 'k' }), leaf.with({ n: 3 })])
            return ctx.save([...(ctx.saved as string[]), ...ids])
          }
          const all: string[] = []
          for await (const child of ctx.children(leaf, { wave: 'all' })) all.push(child.id)
          return { saved: ctx.saved, all }
        },
      },
    )
    const { end } = await run(parent, [leaf])
    const { saved, all } = (end as { result: { saved: string[]; all: string[] } }).result
    expect(saved[1]).toBe(saved[0])
    expect(all).toEqual([saved[0], saved[2]])
  })

  test('names every child that is wrong, and adds none of them', async () => {
    const failures: unknown[] = []
    const parent = defineJob(
      { type: named('strict') },
      {
        async ingest(ctx) {
          await ctx
            .spawn([leaf.with({ n: 1 }), leaf.with({ n: 'x' as never }), { type: '' }])
            .catch((error) => failures.push(error.issues.map((issue: { path: string[] }) => issue.path.join('.'))))
          await ctx.spawn([leaf.with({ n: 7 })])
        },
        aggregate: (ctx) => ctx.childCounts(),
      },
    )
    const { end } = await run(parent, [leaf])
    expect(failures).toEqual([['1.payload.n', '2.type']])
    expect(end).toMatchObject({ state: 'completed', result: { total: 1 } })
  })

  test('a call that nobody awaited still counts: its children are there, and its failure is the attempt’s', async () => {
    const careless = defineJob(
      { type: named('careless') },
      {
        ingest(ctx) {
          void ctx.spawn([leaf.with({ n: 1 })])
        },
        aggregate: (ctx) => ctx.childCounts(),
      },
    )
    expect((await run(careless, [leaf])).end).toMatchObject({ result: { total: 1 } })
    const wrong = defineJob(
      { type: named('wrong') },
      {
        async ingest(ctx) {
          void ctx.spawn([{ type: '' }])
          await new Promise((resolve) => setTimeout(resolve, 5))
        },
        aggregate() {},
      },
    )
    expect((await run(wrong)).end).toMatchObject({ state: 'failed', errorCode: 'VALIDATION' })
  })

  test('takes an array only', async () => {
    const streaming = defineJob(
      { type: named('streaming') },
      {
        async ingest(ctx) {
          async function* children() {
            yield leaf.with({ n: 1 })
          }
          await ctx.spawn(children() as never)
        },
        aggregate() {},
      },
    )
    expect((await run(streaming)).end).toMatchObject({ state: 'failed', errorCode: 'VALIDATION' })
  })

  test('and everything else that changes something takes nothing after the end', async () => {
    const failures: unknown[] = []
    const tried = createGate()
    const quick = defineJob(
      { type: named('quick') },
      {
        run(ctx) {
          setTimeout(async () => {
            await ctx.spawn([{ type: 'x' }]).catch((error) => failures.push(error.message))
            await ctx.save(1).catch((error) => failures.push(error.message))
            ctx.progress(1)
            tried.open()
          }, 20)
        },
      },
    )
    const { engine, id } = await run(quick)
    await tried.opened
    expect(failures).toEqual([expect.stringContaining('over'), expect.stringContaining('over')])
    expect(await engine.job(id)).toMatchObject({ checkpoint: null, progress: null, childCount: 0 })
  })
})

describe('ctx.save', () => {
  test('keeps what it is given over retries and phases, through its schema', async () => {
    const seen: unknown[] = []
    const at = z.object({ at: z.string().transform((text) => new Date(text)) })
    const job = defineJob(
      { type: named('saver'), checkpoint: at },
      {
        ...fast,
        async ingest(ctx) {
          seen.push(ctx.saved)
          if (!ctx.lastAttempt) {
            await ctx.save({ at: '2020-01-01T00:00:00.000Z' })
            seen.push(ctx.saved)
            throw new Error('again')
          }
          await ctx.spawn([])
        },
        aggregate(ctx) {
          seen.push(ctx.saved)
        },
      },
    )
    const { end, engine, id } = await run(job)
    expect(end.state).toBe('completed')
    const saved = { at: new Date('2020-01-01T00:00:00Z') }
    expect(seen).toEqual([null, saved, saved, saved])
    expect(await engine.job(id)).toMatchObject({ checkpoint: { at: '2020-01-01T00:00:00.000Z' } })
  })

  test.each([
    ['the schema refuses', 'text'],
    ['has no JSON form', undefined],
  ])('what %s is refused with VALIDATION', async (_what, value) => {
    const job = defineJob(
      { type: named('bad-saver'), checkpoint: z.number() },
      {
        async run(ctx) {
          await ctx.save(value as never)
        },
      },
    )
    expect((await run(job)).end).toMatchObject({ state: 'failed', errorCode: 'VALIDATION' })
  })

  test('a NUL is refused, and so is a text that is too long', async () => {
    const job = defineJob(
      { type: named('nul-saver') },
      {
        async run(ctx) {
          const codes: string[] = []
          for (const value of ['a\0b', 'x'.repeat(2 ** 20)])
            await ctx.save(value).catch((error) => codes.push(error.code))
          return codes
        },
      },
    )
    expect((await run(job)).end).toMatchObject({ result: ['VALIDATION', 'VALIDATION'] })
  })

  test('an attempt that no longer holds its job is refused, told so, and aborted', async () => {
    const running = createGate()
    const stolen = createGate()
    const outcome: unknown[] = []
    const job = defineJob(
      { type: named('stale') },
      {
        ...fast,
        async run(ctx) {
          if (ctx.attempt > 1) return ctx.saved
          running.open()
          await stolen.opened
          const error = await ctx.save('stale').catch((error) => error)
          ctx.progress(50)
          await new Promise((resolve) => {
            if (ctx.signal.aborted) resolve(undefined)
            ctx.signal.addEventListener('abort', resolve)
          })
          outcome.push(error instanceof LeaseLostError, (ctx.signal.reason as { code: string }).code)
          throw error
        },
      },
    )
    // Neither a beat nor a ring tells: the refusal does.
    const { engine } = await engineWith([job], { heartbeat: 60_000 })
    const handle = await engine.enqueue(job.with())
    await running.opened
    await database.pool.query(
      `update ${database.schema}.job set claim_token = gen_random_uuid(), worker_id = $2 where id = $1`,
      [handle.id, randomUUID()],
    )
    stolen.open()
    await until(() => outcome.length === 2)
    expect(outcome).toEqual([true, 'LEASE_LOST'])
    expect(await engine.job(handle.id)).toMatchObject({ state: 'running', checkpoint: null, progress: null })
    const { engine: other } = await engineWith([job], { heartbeat: 200 })
    expect(await other.waitFor(handle.id, deadline)).toMatchObject({ state: 'completed', result: null })
  })
})

describe('ctx.progress', () => {
  const progressEvents = async (one: TestEngine, id: string) =>
    (await one.events(id)).filter((event) => event.kind === 'progress').map((event) => event.detail)

  test('the first and the last are written, and at most one a second between', async () => {
    const job = defineJob(
      { type: named('busy') },
      {
        async run(ctx) {
          const until = performance.now() + 1500
          let n = 0
          while (performance.now() < until) {
            ctx.progress(n++, 1000, `step ${n}`)
            await new Promise((resolve) => setTimeout(resolve, 1))
          }
          ctx.progress(1000, 1000, 'done')
        },
      },
    )
    const one = await run(job)
    const events = await progressEvents(one, one.id)
    expect(events[0]).toEqual({ current: 0, total: 1000, message: 'step 1' })
    expect(events.at(-1)).toEqual({ current: 1000, total: 1000, message: 'done' })
    expect(events.length).toBeGreaterThanOrEqual(3)
    expect(events.length).toBeLessThanOrEqual(4)
    expect(await one.engine.job(one.id)).toMatchObject({ progress: { current: 1000, total: 1000, message: 'done' } })
  })

  test('one report is one event, before the end', async () => {
    const job = defineJob(
      { type: named('once') },
      {
        run(ctx) {
          ctx.progress(0.5)
        },
      },
    )
    const one = await run(job)
    const events = await one.events(one.id)
    expect(events.map((event) => event.kind)).toEqual(['created', 'moved', 'progress', 'moved'])
    expect(events[2]).toMatchObject({ from: 'running', to: 'running', detail: { current: 0.5 } })
  })

  test('the last one is written too when the attempt fails', async () => {
    const job = defineJob(
      { type: named('fails') },
      {
        run(ctx) {
          ctx.progress(1)
          ctx.progress(2)
          throw new PermanentError('no')
        },
      },
    )
    const one = await run(job)
    expect(await progressEvents(one, one.id)).toEqual([{ current: 1 }, { current: 2 }])
  })

  test('NUL and half characters in a message do no harm; what is no figure is refused', async () => {
    const job = defineJob(
      { type: named('odd') },
      {
        run(ctx) {
          ctx.progress(1, 2, 'a\0b\ud800')
          ctx.progress(Number.NaN)
        },
      },
    )
    const one = await run(job)
    expect(one.end).toMatchObject({ state: 'failed', errorCode: 'VALIDATION' })
    expect(await progressEvents(one, one.id)).toEqual([{ current: 1, total: 2, message: 'a\ufffdb\ufffd' }])
  })
})

describe('ctx.children', () => {
  const leaf = declareJob({
    type: named('leaf'),
    payload: z.object({ n: z.number() }),
    result: z.object({ n: z.number() }),
  })
  const leafJob = defineJob(leaf, {
    run({ payload }) {
      if (payload.n % 10 === 9) throw new PermanentError('nine', { code: 'NOT_FOUND' })
      return { n: payload.n }
    },
  })
  const other = defineJob({ type: named('other') }, { run: () => 'other' })

  test('pages through thousands, each once, in order; by type and state', async () => {
    const parent = defineJob(
      { type: named('wide') },
      {
        async ingest(ctx) {
          await ctx.spawn([...Array.from({ length: 1234 }, (_, n) => leaf.with({ n })), other.with(), other.with()])
        },
        async aggregate(ctx) {
          const numbers: number[] = []
          const ids: string[] = []
          let failed = 0
          for await (const child of ctx.children(leaf)) {
            ids.push(child.id)
            if (child.state === 'completed') numbers.push(child.result.n)
            if (child.state === 'failed') failed += child.error.code === 'NOT_FOUND' ? 1 : 1000
          }
          let untyped = 0
          for await (const child of ctx.children({ states: ['completed'] }))
            untyped += child.type === other.type ? 1 : 0
          let onlyFailed = 0
          for await (const child of ctx.children(leaf, { states: ['failed'] }))
            onlyFailed += child.error.message === 'nine' ? 1 : 0
          const sorted = [...ids].sort()
          return {
            numbers: numbers.reduce((sum, n) => sum + n, 0),
            distinct: new Set(ids).size,
            inOrder: ids.every((id, index) => id === sorted[index]),
            failed,
            onlyFailed,
            untyped,
            counts: await ctx.childCounts(),
          }
        },
      },
    )
    const one = await engineWith([leafJob, other, parent], { concurrency: 200 })
    const end = await one.engine.waitFor(await one.engine.enqueue(parent.with()), deadline)
    const expected = Array.from({ length: 1234 }, (_, n) => n).filter((n) => n % 10 !== 9)
    expect(end).toMatchObject({
      state: 'completed',
      result: {
        numbers: expected.reduce((sum, n) => sum + n, 0),
        distinct: 1234,
        inOrder: true,
        failed: 123,
        onlyFailed: 123,
        untyped: 2,
        counts: { total: 1236, open: 0, completed: 1113, failed: 123, cancelled: 0, queued: 0 },
      },
    })
  })

  test('cancelled children say why; archived ones are left out; deleted ones are gone', async () => {
    const parent = defineJob(
      { type: named('mixed') },
      {
        ingest: (ctx) => ctx.spawn([1, 2, 3, 4].map((n) => leaf.with({ n }, { key: String(n), queue: 'nobody' }))),
        async aggregate(ctx) {
          const seen: unknown[] = []
          for await (const child of ctx.children(leaf)) {
            if (child.state === 'cancelled') seen.push([child.key, child.cancelCode, child.cancelReason])
          }
          return { seen, counts: await ctx.childCounts() }
        },
      },
    )
    const { engine } = await engineWith([leafJob, parent], { queues: ['default'] })
    const handle = await engine.enqueue(parent.with())
    await until(async () => (await engine.job(handle.id))?.state === 'waiting')
    const { rows } = await database.pool.query(
      `select id from ${database.schema}.job where parent_id = $1 order by key`,
      [handle.id],
    )
    await engine.archiveJob(rows[0].id)
    await engine.deleteJob(rows[1].id)
    await engine.cancelJob(rows[2].id)
    await engine.cancelJob(rows[3].id, { reason: 'not wanted' })
    expect(await engine.waitFor(handle, deadline)).toMatchObject({
      result: {
        seen: [
          ['3', 'requested', 'cancelled on request'],
          ['4', 'requested', 'not wanted'],
        ],
        counts: { total: 2, cancelled: 2 },
      },
    })
  })

  test('a stored result that is not what the contract says is an error, not a lie', async () => {
    const stranger = declareJob({ type: leaf.type, result: z.object({ n: z.string() }) })
    const parent = defineJob(
      { type: named('misled') },
      {
        ingest: (ctx) => ctx.spawn([leaf.with({ n: 1 })]),
        async aggregate(ctx) {
          for await (const child of ctx.children(stranger)) return child.state
        },
      },
    )
    const { end } = await run(parent, [leafJob])
    expect(end).toMatchObject({ state: 'failed', errorCode: 'VALIDATION' })
  })

  test('ctx.log knows its job', async () => {
    const job = defineJob(
      { type: named('chatty') },
      {
        run(ctx) {
          ctx.log.info({ extra: 1 }, 'hello')
        },
      },
    )
    const one = await run(job)
    expect(one.log.find((line) => line.msg === 'hello')).toMatchObject({
      job: `JB_${one.id}`,
      type: job.type,
      phase: 'ingest',
      attempt: 1,
      extra: 1,
    })
  })
})
