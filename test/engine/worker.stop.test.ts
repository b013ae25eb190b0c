import { randomUUID } from 'node:crypto'
import { afterAll, describe, expect, test } from 'vitest'
import { defineJob } from '../../src/index.ts'
import { createGate } from '../support/gate.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()
const { engineWith } = engines

afterAll(async () => {
  // No worker's row outlives its worker, but as dead.
  const { rows } = await engines.database.pool.query(
    `select * from ${engines.database.schema}.worker where dead_at is null`,
  )
  expect(rows).toEqual([])
})

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
      (await engines.database.pool.query(`select stopping from ${engines.database.schema}.worker`)).rows[0]
        ?.stopping === true
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
    expect((await engines.database.pool.query(`select id from ${engines.database.schema}.worker`)).rows).toHaveLength(1)
  })
})
