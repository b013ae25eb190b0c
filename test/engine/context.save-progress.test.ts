import { randomUUID } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { defineJob, LeaseLostError, PermanentError } from '../../src/index.ts'
import type { TestEngine } from '../support/engine.ts'
import { createGate } from '../support/gate.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()
const { engineWith, run } = engines

const fast = { backoff: { initial: 1, cap: 5 }, maxRetries: 1 }

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
    await engines.database.pool.query(
      `update ${engines.database.schema}.job set claim_token = gen_random_uuid(), worker_id = $2 where id = $1`,
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
