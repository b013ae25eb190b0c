import { describe, expect, test } from 'vitest'
import { defineJob, PermanentError, RetryableError, SnoozeError } from '../../src/index.ts'
import { createGate } from '../support/gate.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()
const { engineWith } = engines

const fast = { backoff: { initial: 1, cap: 5 } }

/** An error that is its own cause. */
function circle(): Error {
  const error = new Error('round')
  error.cause = error
  return error
}

describe('retries', () => {
  test('an error is retried twice, each with its event and its line in the log; then the job fails', async () => {
    const type = named('doomed')
    const attempts: unknown[] = []
    const job = defineJob(
      { type },
      {
        ...fast,
        run(ctx) {
          attempts.push([ctx.attempt, ctx.retryCount, ctx.lastAttempt])
          throw new Error(`no ${ctx.attempt}`)
        },
      },
    )
    const { engine, events, log } = await engineWith([job])
    const handle = await engine.enqueue(job.with())
    const end = await engine.waitFor(handle, deadline)
    expect(end).toEqual({ id: handle.id, state: 'failed', error: 'no 3', errorCode: 'UNKNOWN' })
    expect(attempts).toEqual([
      [1, 0, false],
      [2, 1, false],
      [3, 2, true],
    ])
    const ends = (await events(handle.id)).filter((event) => event.from === 'running')
    expect(ends.map((event) => [event.to, event.detail.error.message, event.detail.error.code])).toEqual([
      ['queued', 'no 1', 'UNKNOWN'],
      ['queued', 'no 2', 'UNKNOWN'],
      ['failed', 'no 3', 'UNKNOWN'],
    ])
    expect(ends[0]!.detail.error.stack).toMatch(/worker\.retry\.test\.ts/)
    expect(ends[0]!.actor).toMatch(/^WK_[0-9a-f-]{36}$/)
    await until(() => log.some((line) => line.msg.includes('Max retries')))
    expect(log.map((line) => line.msg).filter((msg) => msg.startsWith('꩜'))).toEqual([
      `꩜ Retry 1/2: ${type} ingest | job:JB_${handle.id}`,
      `꩜ Retry 2/2: ${type} ingest | job:JB_${handle.id}`,
      `꩜ Max retries exceeded (2): ${type} ingest | job:JB_${handle.id}`,
    ])
    expect(await engine.job(handle.id)).toMatchObject({ error: 'no 3', errorCode: 'UNKNOWN', retryCount: 2 })
  })

  test('a retry that succeeds leaves a completed job', async () => {
    const job = defineJob(
      { type: named('flaky') },
      {
        ...fast,
        run(ctx) {
          if (!ctx.lastAttempt) throw new RetryableError('again', { operation: 'upload', code: 'AI_FAILURE' })
          return ctx.attempt
        },
      },
    )
    const { engine, log } = await engineWith([job])
    const handle = await engine.enqueue(job.with())
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'completed', result: 3 })
    expect(log.map((line) => line.msg)).toContain(`꩜ Retry 1/2: upload | job:JB_${handle.id}`)
  })

  test('a permanent error, and one that the type does not retry, fail at once', async () => {
    const permanent = defineJob(
      { type: named('permanent') },
      {
        run() {
          throw new PermanentError('never', { code: 'NOT_FOUND' })
        },
      },
    )
    const choosy = defineJob(
      { type: named('choosy') },
      {
        isRetryable: (error) => !(error instanceof RangeError),
        run() {
          throw new RangeError('out of it')
        },
      },
    )
    const { engine } = await engineWith([permanent, choosy])
    const [a, b] = [await engine.enqueue(permanent.with()), await engine.enqueue(choosy.with())]
    expect(await engine.waitFor(a, deadline)).toMatchObject({ state: 'failed', errorCode: 'NOT_FOUND' })
    expect(await engine.waitFor(b, deadline)).toMatchObject({ state: 'failed', errorCode: 'UNKNOWN' })
    expect([await engine.job(a.id), await engine.job(b.id)]).toMatchObject([{ attempt: 1 }, { attempt: 1 }])
  })

  test('a retry waits for its backoff, or for what the error says, and comes without a poll', async () => {
    const times: number[] = []
    const job = defineJob(
      { type: named('delayed') },
      {
        backoff: { initial: 60_000 },
        run(ctx) {
          times.push(performance.now())
          if (ctx.attempt === 1) throw new RetryableError('in a moment', { delay: 300 })
        },
      },
    )
    const { engine } = await engineWith([job], { poll: 60_000 })
    await engine.waitFor(await engine.enqueue(job.with()), deadline)
    expect(times[1]! - times[0]!).toBeGreaterThanOrEqual(300)
    expect(times[1]! - times[0]!).toBeLessThan(10_000)
  })

  test('a snooze spends no retry, however often', async () => {
    const job = defineJob(
      { type: named('sleepy') },
      {
        run(ctx) {
          if (ctx.attempt < 6) throw new SnoozeError(1)
          return [ctx.attempt, ctx.retryCount]
        },
      },
    )
    const { engine, events } = await engineWith([job])
    const handle = await engine.enqueue(job.with({}, { maxRetries: 0 }))
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: [6, 0] })
    expect((await events(handle.id)).filter((event) => event.reason === 'snoozed')).toHaveLength(5)
  })

  test.each([
    ['text', 'just text', 'just text'],
    ['undefined', undefined, 'undefined'],
    ['null', null, 'null'],
    ['an error with NUL', new Error('a\0b\ud800'), 'a\ufffdb\ufffd'],
    ['a circle', circle(), 'round'],
  ])('whatever is thrown is stored: %s', async (_what, thrown, message) => {
    const job = defineJob(
      { type: named('thrower') },
      {
        run() {
          throw thrown
        },
      },
    )
    const { engine } = await engineWith([job])
    const handle = await engine.enqueue(job.with({}, { maxRetries: 0 }))
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'failed', error: message })
  })

  test('what cannot even be asked for its class is an error like any other', async () => {
    const job = defineJob(
      { type: named('proxy') },
      {
        run() {
          const { proxy, revoke } = Proxy.revocable({}, {})
          revoke()
          throw proxy
        },
      },
    )
    const { engine } = await engineWith([job])
    const handle = await engine.enqueue(job.with({}, { maxRetries: 0 }))
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'failed', errorCode: 'UNKNOWN' })
  })

  test('retries are counted anew in AGGREGATE', async () => {
    const job = defineJob(
      { type: named('both') },
      {
        ...fast,
        async ingest(ctx) {
          if (ctx.retryCount < 2) throw new Error('ingest')
          await ctx.spawn([])
        },
        aggregate(ctx) {
          if (ctx.retryCount < 2) throw new Error('aggregate')
          return ctx.attempt
        },
      },
    )
    const { engine } = await engineWith([job])
    expect(await engine.waitFor(await engine.enqueue(job.with()), deadline)).toMatchObject({ result: 6 })
  })

  test('a retried ingest leaves no children of the attempt that failed', async () => {
    const child = defineJob({ type: named('child') }, { run() {} })
    const job = defineJob(
      { type: named('half') },
      {
        ...fast,
        async ingest(ctx) {
          await ctx.spawn([child.with(), child.with()])
          if (!ctx.lastAttempt) throw new Error('after spawning')
        },
        aggregate: (ctx) => ctx.childCounts(),
      },
    )
    const { engine } = await engineWith([child, job])
    const handle = await engine.enqueue(job.with())
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: { total: 2, completed: 2 } })
    const { rows } = await engines.database.pool.query(
      `select count(*)::int as n from ${engines.database.schema}.job_event where parent_id = $1 and kind = 'created'`,
      [handle.id],
    )
    expect(rows[0].n).toBe(2)
  })
})

describe('time limits of an attempt', () => {
  test('an attempt that takes too long is retried with TIMEOUT, and its signal says so', async () => {
    const reasons: unknown[] = []
    const job = defineJob(
      { type: named('slow') },
      {
        ...fast,
        timeouts: { ingest: 100 },
        async run(ctx) {
          if (ctx.lastAttempt) return 'in time'
          await new Promise((_, reject) =>
            ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason)),
          ).finally(() => reasons.push((ctx.signal.reason as { code: string }).code))
        },
      },
    )
    const { engine, events } = await engineWith([job])
    const handle = await engine.enqueue(job.with())
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'completed', result: 'in time' })
    expect(reasons).toEqual(['TIMEOUT', 'TIMEOUT'])
    const retries = (await events(handle.id)).filter((event) => event.from === 'running' && event.to === 'queued')
    expect(retries.map((event) => event.detail.error.code)).toEqual(['TIMEOUT', 'TIMEOUT'])
  })

  test('a handler that ignores its signal gives its slot back, and its late result is ignored', async () => {
    const late = createGate()
    const ended = createGate()
    const job = defineJob(
      { type: named('deaf') },
      {
        timeouts: { ingest: 100 },
        async run() {
          await late.opened
          ended.open()
          return 'too late'
        },
      },
    )
    const other = defineJob({ type: named('other') }, { run: () => 'ran' })
    const { engine } = await engineWith([job, other], { concurrency: 1 })
    const handle = await engine.enqueue(job.with({}, { maxRetries: 0 }))
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'failed', errorCode: 'TIMEOUT' })
    // The one slot is free, although the handler still runs.
    expect(await engine.waitFor(await engine.enqueue(other.with()), deadline)).toMatchObject({ result: 'ran' })
    late.open()
    await ended.opened
    await engine.waitFor(await engine.enqueue(other.with()), deadline)
    expect(await engine.job(handle.id)).toMatchObject({ state: 'failed', result: null })
  })

  test('each phase has its own limit, and a job may have its own', async () => {
    const child = defineJob({ type: named('child') }, { run() {} })
    const job = defineJob(
      { type: named('phased') },
      {
        ...fast,
        timeouts: { ingest: 'none', aggregate: '1h' },
        ingest: (ctx) => ctx.spawn([child.with()]),
        aggregate: () => new Promise(() => {}),
      },
    )
    const { engine } = await engineWith([child, job])
    const handle = await engine.enqueue(job.with({}, { maxRetries: 0, timeouts: { aggregate: 100 } }))
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'failed', errorCode: 'TIMEOUT' })
    expect(await engine.job(handle.id)).toMatchObject({ phase: 'aggregate', wave: 1 })
  })
})
