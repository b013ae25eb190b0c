import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import {
  type AnyDefinition,
  declareJob,
  defineJob,
  type JobContext,
  PermanentError,
  SnoozeError,
} from '../../src/index.ts'
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

const named = (what: string) => `${what}-${randomUUID()}`
const deadline = { timeoutMs: 30_000 }
const fastRetries = { backoff: { initial: 1, cap: 5 } }

describe('one phase', () => {
  test('runs, and its result is read through the contract', async () => {
    const contract = declareJob({
      type: named('twice'),
      payload: z.object({ n: z.number(), at: z.string().transform((text) => new Date(text)) }),
      result: z.object({ n: z.number(), at: z.string().transform((text) => new Date(text)) }),
    })
    const { engine, events } = await engineWith([
      defineJob(contract, { run: ({ payload }) => ({ n: payload.n * 2, at: payload.at.toISOString() }) }),
    ])
    const handle = await engine.enqueue(contract.with({ n: 21, at: '2020-01-01T00:00:00Z' }))
    const end = await engine.waitFor(handle, deadline)
    expect(end).toEqual({ id: handle.id, state: 'completed', result: { n: 42, at: new Date('2020-01-01T00:00:00Z') } })
    expect(await engine.job(handle.id)).toMatchObject({ payload: { n: 21, at: '2020-01-01T00:00:00Z' }, attempt: 1 })
    expect((await events(handle.id)).map((event) => `${event.from}>${event.to}`)).toEqual([
      'null>queued',
      'queued>running',
      'running>completed',
    ])
  })

  test('the context tells what the job is', async () => {
    const seen: Partial<JobContext>[] = []
    const job = defineJob(
      { type: named('seen') },
      {
        run(ctx) {
          seen.push({ ...ctx })
        },
      },
    )
    const { engine } = await engineWith([job])
    const handle = await engine.enqueue(job.with({ a: 1 }, { key: 'k', metadata: { m: 1 }, maxRetries: 0 }))
    await engine.waitFor(handle, deadline)
    expect(seen).toEqual([
      expect.objectContaining({
        id: `JB_${handle.id}`,
        treeId: `JB_${handle.id}`,
        parentId: null,
        key: 'k',
        payload: { a: 1 },
        metadata: { m: 1 },
        phase: 'ingest',
        wave: 0,
        attempt: 1,
        retryCount: 0,
        lastAttempt: true,
        saved: null,
      }),
    ])
  })

  test('no more run at once than there are slots, and all slots are used', async () => {
    let running = 0
    let most = 0
    const three = createGate()
    const job = defineJob(
      { type: named('slots') },
      {
        async run() {
          most = Math.max(most, ++running)
          if (running === 3) three.open()
          await three.opened
          running--
        },
      },
    )
    const { engine } = await engineWith([job], { concurrency: 3 })
    const handles = await engine.enqueueMany(Array.from({ length: 50 }, () => job.with()))
    await Promise.all(handles.map((handle) => engine.waitFor(handle, deadline)))
    expect(most).toBe(3)
  })

  test('one free slot is used, while the others are held for long', async () => {
    const gate = createGate()
    const held = defineJob({ type: named('held') }, { run: () => gate.opened })
    const short = defineJob({ type: named('short') }, { run: () => 'done' })
    const { engine } = await engineWith([held, short], { concurrency: 4 })
    const long = await engine.enqueueMany(Array.from({ length: 3 }, () => held.with()))
    await until(async () =>
      (await Promise.all(long.map((one) => engine.job(one.id)))).every((job) => job?.state === 'running'),
    )
    const handles = await engine.enqueueMany(Array.from({ length: 40 }, () => short.with()))
    for (const handle of handles) expect((await engine.waitFor(handle, deadline)).state).toBe('completed')
    gate.open()
    for (const handle of long) expect((await engine.waitFor(handle, deadline)).state).toBe('completed')
  })

  test('jobs begin in order of queue, priority and age', async () => {
    const order: unknown[] = []
    const job = defineJob(
      { type: named('ordered') },
      {
        run({ payload }) {
          order.push(payload)
        },
      },
    )
    const { engine } = await engineWith([job], { concurrency: 1, start: false })
    await engine.enqueue(job.with('third'))
    await engine.enqueue(job.with('fourth'))
    await engine.enqueue(job.with('second', { priority: -1 }))
    await engine.enqueue(job.with('first', { queue: 'a' }))
    await engine.start()
    await until(() => order.length === 4)
    expect(order).toEqual(['first', 'second', 'third', 'fourth'])
  })

  test('a job that is due later runs then, without waiting for a poll', async () => {
    const job = defineJob({ type: named('later') }, { run: () => Date.now() })
    const { engine } = await engineWith([job], { poll: 60_000 })
    const runAt = new Date(Date.now() + 300)
    const end = await engine.waitFor(await engine.enqueue(job.with({}, { runAt })), deadline)
    const late = (end as { result: number }).result - runAt.getTime()
    expect(late).toBeGreaterThanOrEqual(0)
    expect(late).toBeLessThan(5000)
  })

  test('only the queues served are claimed', async () => {
    const job = defineJob({ type: named('queued') }, { run() {} })
    const { engine } = await engineWith([job], { queues: ['mine'] })
    const other = await engine.enqueue(job.with({}, { queue: 'other' }))
    const mine = await engine.enqueue(job.with({}, { queue: 'mine' }))
    expect((await engine.waitFor(mine, deadline)).state).toBe('completed')
    expect((await engine.job(other.id))?.state).toBe('queued')
    const { engine: all } = await engineWith([job])
    expect((await all.waitFor(other.id, deadline)).state).toBe('completed')
  })

  test('a type that nobody here knows is left for others, and blocks nobody', async () => {
    const unknown = named('unknown')
    const known = defineJob({ type: named('known') }, { run() {} })
    const { engine } = await engineWith([known], { concurrency: 2 })
    const left = await engine.enqueueMany(Array.from({ length: 20 }, () => ({ type: unknown, priority: -100 })))
    const handles = await engine.enqueueMany(Array.from({ length: 20 }, () => known.with()))
    for (const handle of handles) expect((await engine.waitFor(handle, deadline)).state).toBe('completed')
    expect((await engine.job(left[0]!.id))?.state).toBe('queued')
    const { engine: other } = await engineWith([defineJob({ type: unknown }, { run: () => 'there' })])
    for (const handle of left) expect(await other.waitFor(handle, deadline)).toMatchObject({ result: 'there' })
  })

  test('two engines share the work, each job once', async () => {
    const runs = new Map<string, string[]>()
    const type = named('shared')
    const jobOf = (name: string) =>
      defineJob(
        { type },
        {
          async run(ctx) {
            runs.set(ctx.id, [...(runs.get(ctx.id) ?? []), name])
            await new Promise(setImmediate)
          },
        },
      )
    const [a, b] = await Promise.all([
      engineWith([jobOf('a')], { concurrency: 5 }),
      engineWith([jobOf('b')], { concurrency: 5 }),
    ])
    const handles = await a.engine.enqueueMany(Array.from({ length: 400 }, () => ({ type })))
    await Promise.all(handles.map((handle) => b.engine.waitFor(handle, deadline)))
    expect(runs.size).toBe(400)
    expect([...runs.values()].every((names) => names.length === 1)).toBe(true)
    expect(new Set([...runs.values()].flat())).toEqual(new Set(['a', 'b']))
  })
})

describe('payloads and results are checked', () => {
  test('a payload that no engine checked at the door fails its job for good, with VALIDATION', async () => {
    const type = named('typed')
    const { engine: stranger } = await engineWith([], { start: false })
    const { id } = await stranger.enqueue({ type, payload: { n: 'one' } })
    const { engine } = await engineWith([defineJob({ type, payload: z.object({ n: z.number() }) }, { run() {} })])
    expect(await engine.waitFor(id, deadline)).toMatchObject({ state: 'failed', errorCode: 'VALIDATION' })
    expect(await engine.job(id)).toMatchObject({ attempt: 1, retryCount: 0 })
    await expect(engine.enqueue({ type, payload: { n: 'one' } })).rejects.toMatchObject({ code: 'VALIDATION' })
  })

  test.each([
    ['the schema refuses', { n: 'one' }],
    ['has a NUL', 'a\0b'],
    ['is too large', 'x'.repeat(2 ** 20)],
    ['has no JSON form', 1n],
  ])('a result that %s fails its job for good, with VALIDATION; others settle', async (_what, result) => {
    const bad = defineJob(
      { type: named('bad'), result: z.union([z.number(), z.string(), z.bigint()]) },
      { run: () => result as never },
    )
    const good = defineJob({ type: named('good') }, { run: () => 'fine' })
    const { engine } = await engineWith([bad, good])
    const [one, ...others] = await engine.enqueueMany([bad.with(), ...Array.from({ length: 9 }, () => good.with())])
    expect(await engine.waitFor(one!, deadline)).toMatchObject({ state: 'failed', errorCode: 'VALIDATION' })
    for (const handle of others) expect((await engine.waitFor(handle, deadline)).state).toBe('completed')
  })
})

describe('two phases', () => {
  const leaf = declareJob({ type: named('leaf'), payload: z.object({ n: z.number() }), result: z.number() })
  const leafJob = defineJob(leaf, {
    ...fastRetries,
    run({ payload }) {
      if (payload.n < 0) throw new PermanentError('negative')
      return payload.n
    },
  })

  test('children run, and the parent is woken once to aggregate them', async () => {
    const phases: string[] = []
    const sum = defineJob(
      { type: named('sum'), result: z.number() },
      {
        async ingest(ctx) {
          phases.push(ctx.phase)
          await ctx.spawn([1, 2, 3].map((n) => leaf.with({ n })))
        },
        async aggregate(ctx) {
          phases.push(`${ctx.phase} ${ctx.wave}`)
          let total = 0
          for await (const child of ctx.children(leaf, { states: ['completed'] })) total += child.result
          return total
        },
      },
    )
    const { engine, events } = await engineWith([leafJob, sum])
    const handle = await engine.enqueue(sum.with())
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'completed', result: 6 })
    expect(phases).toEqual(['ingest', 'aggregate 1'])
    const log = await events(handle.id)
    expect(log.map((event) => `${event.from}>${event.to}`)).toEqual([
      'null>queued',
      'queued>running',
      'running>waiting',
      'waiting>queued',
      'queued>running',
      'running>completed',
    ])
    expect(log.filter((event) => event.detail?.operationId)).toHaveLength(1)
  })

  test('no children: it aggregates at once (case 7)', async () => {
    const empty = defineJob(
      { type: named('empty') },
      {
        ingest: (ctx) => ctx.spawn([]),
        aggregate: async (ctx) => ({ wave: ctx.wave, counts: await ctx.childCounts() }),
      },
    )
    const { engine } = await engineWith([empty], { poll: 60_000 })
    expect(await engine.waitFor(await engine.enqueue(empty.with()), deadline)).toMatchObject({
      result: { wave: 1, counts: { total: 0, open: 0, completed: 0 } },
    })
  })

  test('a phase that spawns nothing at all ends the job', async () => {
    let aggregated = false
    const plain = defineJob(
      { type: named('plain') },
      {
        ingest: () => 'from ingest',
        aggregate() {
          aggregated = true
        },
      },
    )
    const { engine } = await engineWith([plain])
    expect(await engine.waitFor(await engine.enqueue(plain.with()), deadline)).toMatchObject({ result: 'from ingest' })
    expect(aggregated).toBe(false)
  })

  test('the last child, or every child, fails for good: the parent wakes and sees it (cases 1 and 12)', async () => {
    const parent = defineJob(
      { type: named('parent') },
      {
        async ingest(ctx) {
          await ctx.spawn((ctx.payload as number[]).map((n) => leaf.with({ n })))
        },
        async aggregate(ctx) {
          const seen = []
          for await (const child of ctx.children(leaf)) {
            seen.push(child.state === 'failed' ? `${child.error.code}: ${child.error.message}` : child.state)
          }
          return seen
        },
      },
    )
    const { engine } = await engineWith([leafJob, parent], { concurrency: 1 })
    const [last, all] = await engine.enqueueMany([parent.with([1, 2, -1]), parent.with([-1, -2])])
    expect(await engine.waitFor(last!, deadline)).toMatchObject({
      state: 'completed',
      result: ['completed', 'completed', 'UNKNOWN: negative'],
    })
    expect(await engine.waitFor(all!, deadline)).toMatchObject({
      result: ['UNKNOWN: negative', 'UNKNOWN: negative'],
    })
  })

  test('every child ends before the parent waits (case 10)', async () => {
    // Children from outside run while the ingest still does; only its end can settle the edge.
    const gate = createGate()
    const slow = defineJob(
      { type: named('slow') },
      {
        async ingest(ctx) {
          await gate.opened
          await ctx.spawn([])
        },
        aggregate: (ctx) => ctx.childCounts(),
      },
    )
    const { engine } = await engineWith([leafJob, slow])
    const handle = await engine.enqueue(slow.with())
    await until(async () => (await engine.job(handle.id))?.state === 'running')
    const { children } = await engine.spawnChildren(handle.id, [leaf.with({ n: 1 }), leaf.with({ n: -1 })])
    for (const child of children) await engine.waitFor(child.id, deadline)
    expect((await engine.job(handle.id))?.state).toBe('running')
    gate.open()
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: { completed: 1, failed: 1, open: 0 } })
  })

  test('a child in retry, snoozed or paused is not done (case 13), and a waiting parent is never claimed (case 15)', async () => {
    const attempts = new Map<string, number>()
    const stubborn = defineJob(
      { type: named('stubborn') },
      {
        backoff: { initial: 50, cap: 50 },
        async run(ctx) {
          const attempt = (attempts.get(ctx.id) ?? 0) + 1
          attempts.set(ctx.id, attempt)
          const kind = ctx.payload as string
          if (kind === 'retried' && attempt < 3) throw new Error('again')
          if (kind === 'snoozed' && attempt === 1) throw new SnoozeError(100)
          return attempt
        },
      },
    )
    let aggregations = 0
    const parent = defineJob(
      { type: named('patient') },
      {
        async ingest(ctx) {
          await ctx.spawn(
            ['retried', 'snoozed', 'paused'].map((kind) => stubborn.with(kind, { key: kind, priority: 1 })),
          )
        },
        async aggregate(ctx) {
          aggregations++
          const results: Record<string, unknown> = {}
          for await (const child of ctx.children({ states: ['completed'] })) results[child.key!] = child.result
          return results
        },
      },
    )
    const { engine, events } = await engineWith([parent], { concurrency: 4 })
    const handle = await engine.enqueue(parent.with())
    await until(async () => (await engine.job(handle.id))?.state === 'waiting')
    const { rows } = await database.pool.query(
      `select id from ${database.schema}.job where parent_id = $1 and key = 'paused'`,
      [handle.id],
    )
    await engine.pauseJob(rows[0].id)
    const other = await engineWith([stubborn, parent], { concurrency: 4 })
    const openChildren = async () => (await engine.job(handle.id))?.openChildren
    await until(async () => (await openChildren()) === 1)
    expect(await engine.job(handle.id)).toMatchObject({ state: 'waiting', wave: 0 })
    expect(aggregations).toBe(0)
    await other.engine.resumeJob(rows[0].id)
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: { retried: 3, snoozed: 2, paused: 1 } })
    expect(aggregations).toBe(1)
    const log = await events(handle.id)
    const claimedWhileWaiting = log.filter((event, index) => event.to === 'running' && log[index - 1]?.to === 'waiting')
    expect(claimedWhileWaiting).toEqual([])
  })

  test('it may spawn again: another wave each time', async () => {
    const stages = defineJob(
      { type: named('stages') },
      {
        ingest: (ctx) => ctx.spawn([leaf.with({ n: 0 })]),
        async aggregate(ctx) {
          if (ctx.wave < 3) return ctx.spawn([leaf.with({ n: ctx.wave }), leaf.with({ n: ctx.wave })])
          const last: unknown[] = []
          for await (const child of ctx.children(leaf, { states: ['completed'] })) last.push(child.result)
          const all: unknown[] = []
          for await (const child of ctx.children(leaf, { wave: 'all', states: ['completed'] })) all.push(child.result)
          const first = await ctx.childCounts({ wave: 1 })
          return { last, all: all.sort(), first: first.total }
        },
      },
    )
    const { engine } = await engineWith([leafJob, stages])
    expect(await engine.waitFor(await engine.enqueue(stages.with()), deadline)).toMatchObject({
      result: { last: [2, 2], all: [0, 1, 1, 2, 2], first: 1 },
    })
  })

  test('a retried aggregate does not run the children again, and reads the same set', async () => {
    let leaves = 0
    let tries = 0
    const counted = defineJob(
      { type: named('counted') },
      {
        run() {
          leaves++
        },
      },
    )
    const parent = defineJob(
      { type: named('again') },
      {
        ...fastRetries,
        ingest: (ctx) => ctx.spawn([counted.with(), counted.with()]),
        async aggregate(ctx) {
          const { total } = await ctx.childCounts()
          if (++tries < 3) throw new Error('not yet')
          return { total, wave: ctx.wave, retryCount: ctx.retryCount }
        },
      },
    )
    const { engine } = await engineWith([counted, parent])
    expect(await engine.waitFor(await engine.enqueue(parent.with()), deadline)).toMatchObject({
      result: { total: 2, wave: 1, retryCount: 2 },
    })
    expect(leaves).toBe(2)
  })

  test('without an aggregate, what was returned is the result once the children have settled', async () => {
    const ended: string[] = []
    const child = defineJob(
      { type: named('child') },
      {
        run() {
          ended.push('child')
        },
      },
    )
    const one = defineJob(
      { type: named('one') },
      {
        async run(ctx) {
          await ctx.spawn([child.with()])
          return 'kept'
        },
      },
    )
    const ingestOnly = defineJob(
      { type: named('ingest-only'), result: z.string() },
      {
        async ingest(ctx) {
          await ctx.spawn([child.with()])
          return 'kept too'
        },
      },
    )
    const { engine } = await engineWith([child, one, ingestOnly])
    const [a, b] = [await engine.enqueue(one.with()), await engine.enqueue(ingestOnly.with())]
    expect(await engine.waitFor(a, deadline)).toMatchObject({ state: 'completed', result: 'kept' })
    expect(await engine.waitFor(b, deadline)).toMatchObject({ state: 'completed', result: 'kept too' })
    expect(ended).toHaveLength(2)
  })

  test('a whole tree at once: inner jobs skip their ingest, and one that has only `run` runs it after its children', async () => {
    const order: string[] = []
    const note = (name: string) => (ctx: JobContext) => {
      order.push(`${name} ${ctx.phase}`)
      return name
    }
    const two = defineJob({ type: named('two') }, { ingest: note('two'), aggregate: note('two') })
    const one = defineJob({ type: named('one') }, { run: note('one') })
    const ingestOnly = defineJob({ type: named('ingest') }, { ingest: note('ingest-only') })
    const { engine } = await engineWith([two, one, ingestOnly], { concurrency: 1 })
    const handle = await engine.enqueue(
      two.with({}, { children: [one.with({}, { children: [ingestOnly.with({}, { children: [] })] })] }),
    )
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: 'two' })
    expect(order).toEqual(['one aggregate', 'two aggregate'])
  })

  test('a nested job that runs after its children and spawns more runs once, and keeps its result', async () => {
    let runs = 0
    const leafless = defineJob({ type: named('leafless') }, { run() {} })
    const spawner = defineJob(
      { type: named('spawner') },
      {
        async run(ctx) {
          runs++
          await ctx.spawn([leafless.with()])
          return `run ${runs}`
        },
      },
    )
    const { engine } = await engineWith([leafless, spawner])
    const handle = await engine.enqueue(spawner.with({}, { children: [leafless.with()] }))
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: 'run 1' })
    expect(await engine.job(handle.id)).toMatchObject({ wave: 2, childCount: 2 })
  })

  test('deep trees of parents that are children', async () => {
    const nest = declareJob({ type: named('nest'), payload: z.object({ depth: z.number() }), result: z.number() })
    const nestJob = defineJob(nest, {
      async ingest(ctx) {
        const { depth } = ctx.payload
        if (depth === 0) return 1
        await ctx.spawn([nest.with({ depth: depth - 1 }), nest.with({ depth: depth - 1 })])
      },
      async aggregate(ctx) {
        let total = 1
        for await (const child of ctx.children(nest, { states: ['completed'] })) total += child.result
        return total
      },
    })
    const { engine } = await engineWith([nestJob], { concurrency: 20 })
    const handle = await engine.enqueue(nest.with({ depth: 6 }))
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: 127 })
  })
})
