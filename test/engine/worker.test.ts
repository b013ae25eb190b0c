import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { declareJob, defineJob, type JobContext } from '../../src/index.ts'
import { createGate } from '../support/gate.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()
const { engineWith } = engines

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
    expect(await engine.explain(left[0]!.id)).toMatchObject([
      { reason: 'no_worker', facts: { type: unknown, why: 'type_unknown' } },
    ])
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
