import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { declareJob, defineJob, PermanentError, RetryableError, SnoozeError } from '../../src/index.ts'
import { givenChild, runPhase } from '../../src/testing/index.ts'

const leaf = declareJob({
  type: 'leaf',
  payload: z.object({ at: z.string().transform((text) => new Date(text)) }),
  result: z.object({ on: z.string().transform((text) => new Date(text)) }),
  checkpoint: z.object({ offset: z.number() }),
})
const at = '2020-01-01T00:00:00.000Z'

describe('runPhase', () => {
  test('runs a handler with what its schemas give, and gives what readers get', async () => {
    const job = defineJob(leaf, {
      async run(ctx) {
        expect(ctx.payload.at).toEqual(new Date(at))
        expect(ctx).toMatchObject({
          phase: 'ingest',
          wave: 0,
          attempt: 1,
          lastAttempt: false,
          parentId: null,
          key: 'k',
        })
        expect(ctx.saved).toEqual({ offset: 1 })
        ctx.log.info({ n: 1 }, 'working')
        ctx.progress(1, 3)
        ctx.progress(2, 3, 'half')
        await ctx.save({ offset: 2 })
        return { on: at }
      },
    })
    const run = await runPhase(job, 'ingest', { payload: { at }, saved: { offset: 1 }, key: 'k' })
    expect(run).toMatchObject({ outcome: 'completed', result: { on: new Date(at) }, spawned: [], saved: { offset: 2 } })
    expect(run.progress).toEqual([
      { current: 1, total: 3 },
      { current: 2, total: 3, message: 'half' },
    ])
    expect(run.logs).toEqual([expect.objectContaining({ level: 30, msg: 'working', n: 1, type: 'leaf' })])
  })

  test('classifies what is thrown, by the rules of the type and the retries left', async () => {
    const throwing = (error: unknown, isRetryable?: () => boolean) =>
      defineJob(
        { type: 'throws' },
        {
          maxRetries: 1,
          ...(isRetryable && { isRetryable }),
          async run() {
            throw error
          },
        },
      )
    const retry = new RetryableError('later', { code: 'NETWORK', delay: '5s' })
    expect(await runPhase(throwing(retry), 'ingest')).toMatchObject({
      outcome: 'retry',
      error: { code: 'NETWORK', message: 'later' },
      delayMs: 5000,
    })
    expect(await runPhase(throwing(retry), 'ingest', { retryCount: 1 })).toMatchObject({ outcome: 'failed' })
    expect(await runPhase(throwing(new PermanentError('no')), 'ingest')).toMatchObject({
      outcome: 'failed',
      error: { code: 'UNKNOWN', message: 'no' },
    })
    expect(await runPhase(throwing(new SnoozeError('1m')), 'ingest')).toMatchObject({
      outcome: 'snoozed',
      delayMs: 60_000,
    })
    expect(await runPhase(throwing(new Error('x')), 'ingest')).toMatchObject({ outcome: 'retry' })
    expect(
      await runPhase(
        throwing(new Error('x'), () => false),
        'ingest',
      ),
    ).toMatchObject({ outcome: 'failed' })
  })

  test('what the schemas refuse fails the phase: payload, checkpoint, result', async () => {
    const job = defineJob(leaf, { run: async () => ({ on: 7 as never }) })
    const refused = { outcome: 'failed', error: { code: 'VALIDATION' } }
    expect(await runPhase(job, 'ingest', { payload: { at: 7 as never } })).toMatchObject(refused)
    expect(await runPhase(job, 'ingest', { payload: { at }, saved: { offset: 'x' as never } })).toMatchObject(refused)
    expect(await runPhase(job, 'ingest', { payload: { at } })).toMatchObject(refused)
  })

  test('collects the children of arrays and of streams; those that are given keep their keys', async () => {
    const ids: unknown[] = []
    const parent = defineJob(
      { type: 'parent' },
      {
        async ingest(ctx) {
          ids.push(await ctx.spawn([leaf.with({ at }, { key: 'given' }), leaf.with({ at }, { key: 'a', priority: 3 })]))
          ids.push(await ctx.spawn([leaf.with({ at }, { key: 'a' }), { type: 'other', children: [{ type: 'below' }] }]))
          async function* stream() {
            for (const key of ['given', 'x', 'x']) yield leaf.with({ at }, { key })
          }
          ids.push(await ctx.spawn(stream()))
        },
        aggregate() {},
      },
    )
    const leafJob = defineJob(leaf, { queue: 'slow', run: async () => ({ on: at }) })
    const given = { type: 'leaf', key: 'given', state: 'queued' } as const
    const run = await runPhase(parent, 'ingest', { children: [given], jobs: [leafJob] })
    expect(run.outcome).toBe('waiting')
    expect(run.result).toBeUndefined()
    expect(run.spawned.map((child) => [child.type, child.key, child.queue, child.priority])).toEqual([
      ['leaf', 'x', 'slow', 0],
      ['leaf', 'a', 'slow', 3],
      ['other', null, 'default', 0],
    ])
    expect(run.spawned[2]?.children).toMatchObject([{ type: 'below', children: null }])
    expect(run.spawned[1]?.payload).toEqual({ at })
    const [first, second, third] = ids as [string[], string[], unknown]
    expect(second[0]).toBe(first[1])
    expect(run.spawned[1]?.id).toBe(first[1])
    expect(third).toEqual({ created: 1, existing: 2 })
    const wrong = await runPhase(
      defineJob({ type: 'wrong' }, { ingest: (ctx) => ctx.spawn([leaf.with({ at: 7 as never })]) }),
      'ingest',
      { jobs: [leafJob] },
    )
    expect(wrong).toMatchObject({ outcome: 'failed', error: { code: 'VALIDATION' }, spawned: [] })
  })

  test('gives an aggregate its children, by wave, state and contract', async () => {
    const parent = defineJob(
      { type: 'parent', result: z.any() },
      {
        ingest() {},
        async aggregate(ctx) {
          const seen: unknown[] = []
          for await (const child of ctx.children(leaf)) {
            if (child.state === 'completed') seen.push(child.result.on.getTime())
            if (child.state === 'failed') seen.push(child.error.code)
            if (child.state === 'cancelled') seen.push(child.cancelCode)
          }
          const all: string[] = []
          for await (const child of ctx.children({ wave: 'all' })) all.push(child.type)
          const { total, open } = await ctx.childCounts()
          return { seen, all, total, open, wave: ctx.wave }
        },
      },
    )
    const run = await runPhase(parent, 'aggregate', {
      wave: 2,
      children: [
        givenChild(leaf, { state: 'completed', result: { on: at } }),
        { type: 'leaf', state: 'failed', error: { message: 'no', code: 'NETWORK' } },
        { type: 'leaf', state: 'cancelled' },
        { type: 'leaf', state: 'running' },
        { type: 'old', state: 'completed', result: 1, wave: 1 },
      ],
    })
    expect(run.result).toEqual({
      seen: [Date.parse(at), 'NETWORK', 'requested'],
      all: ['leaf', 'leaf', 'leaf', 'old'],
      total: 4,
      open: 1,
      wave: 2,
    })
  })

  test('of a type without aggregate: what ingest returned is kept; run runs after given children', async () => {
    const spawns = defineJob({ type: 'spawns' }, { ingest: (ctx) => ctx.spawn([]).then(() => 'kept') })
    expect(await runPhase(spawns, 'ingest')).toMatchObject({ outcome: 'waiting', result: 'kept' })
    await expect(runPhase(spawns, 'aggregate')).rejects.toMatchObject({ code: 'VALIDATION' })
    const after = defineJob({ type: 'after' }, { run: async (ctx) => (await ctx.childCounts()).completed })
    const children = [{ type: 'x', state: 'completed', result: null } as const]
    expect(await runPhase(after, 'aggregate', { children })).toMatchObject({ outcome: 'completed', result: 1 })
  })

  test('a signal aborts, and nothing of the phase counts; at shutdown a result still does', async () => {
    const reasons: unknown[] = []
    const heedless = defineJob(
      { type: 'heedless' },
      {
        async run(ctx) {
          await sleep(5_000, undefined, { signal: ctx.signal }).catch(() => reasons.push(ctx.signal.reason.code))
          return 'done'
        },
      },
    )
    const abortSoon = (reason?: unknown) => {
      const controller = new AbortController()
      setImmediate(() => controller.abort(reason))
      return { signal: controller.signal }
    }
    expect(await runPhase(heedless, 'ingest', abortSoon())).toMatchObject({ outcome: 'aborted' })
    expect(await runPhase(heedless, 'ingest', abortSoon({ code: 'SHUTDOWN' }))).toMatchObject({ outcome: 'completed' })
    const heedful = defineJob({ type: 'heedful' }, { run: (ctx) => sleep(5_000, 1, { signal: ctx.signal }) })
    expect(await runPhase(heedful, 'ingest', abortSoon({ code: 'TIMEOUT' }))).toMatchObject({ outcome: 'aborted' })
    expect(reasons).toEqual(['CANCELLED', 'SHUTDOWN'])
    expect(await runPhase(heedful, 'ingest', { signal: AbortSignal.abort() })).toMatchObject({ outcome: 'aborted' })
  })

  test('a call that nobody awaited counts, as with a worker', async () => {
    const careless = defineJob({ type: 'careless' }, { run: (ctx) => void ctx.save(1n as never) })
    expect(await runPhase(careless, 'ingest')).toMatchObject({ outcome: 'failed', error: { code: 'VALIDATION' } })
  })
})
