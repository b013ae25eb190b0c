import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type AnyDefinition, defineJob, PermanentError, RetryableError, SnoozeError } from '../../src/index.ts'
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
    const { rows } = await database.pool.query(
      `select count(*)::int as n from ${database.schema}.job_event where parent_id = $1 and kind = 'created'`,
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

describe('steering a job while it runs', () => {
  const waiting = () => {
    const reasons: unknown[] = []
    const running = createGate<string>()
    const goOn = createGate()
    const ended = createGate()
    const job = defineJob(
      { type: named('steered') },
      {
        ...fast,
        async run(ctx) {
          running.open(ctx.id)
          const aborted = new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
          await Promise.race([aborted, goOn.opened])
          if (ctx.signal.aborted) reasons.push((ctx.signal.reason as { code: string }).code)
          ended.open()
          return 'finished all the same'
        },
      },
    )
    return { job, reasons, running, goOn, ended }
  }

  test('a cancel marks the job at once, reaches its signal, and its result is ignored', async () => {
    const { job, reasons, running, ended } = waiting()
    const { engine, events } = await engineWith([job])
    const handle = await engine.enqueue(job.with())
    await running.opened
    const { job: cancelled } = await engine.cancelJob(handle.id, { reason: 'changed my mind', actor: 'me' })
    expect(cancelled.state).toBe('cancelled')
    await ended.opened
    expect(reasons).toEqual(['CANCELLED'])
    expect(await engine.waitFor(handle, deadline)).toEqual({
      id: handle.id,
      state: 'cancelled',
      cancelCode: 'requested',
      cancelReason: 'changed my mind',
    })
    expect((await events(handle.id)).at(-1)).toMatchObject({ to: 'cancelled', actor: 'me', reason: 'changed my mind' })
  })

  test('a cancel in another process reaches it by the doorbell', async () => {
    const { job, reasons, running, ended } = waiting()
    // Beats are far apart: what comes before the first can only be the ring.
    const { engine } = await engineWith([job], { heartbeat: 60_000, poll: 60_000 })
    const { engine: other } = await engineWith([], { start: false })
    const handle = await other.enqueue(job.with())
    await running.opened
    await other.cancelJob(handle.id)
    await ended.opened
    expect(reasons).toEqual(['CANCELLED'])
    expect(engine.running).toBe(true)
  })

  test('a cancel by SQL, that rings no bell, reaches it by the heartbeat', async () => {
    const { job, reasons, running, ended } = waiting()
    const { engine } = await engineWith([job], { heartbeat: 200 })
    const handle = await engine.enqueue(job.with())
    await running.opened
    await database.pool.query(
      `with gone as (update ${database.schema}.job set state = 'cancelled', version = version + 1 where id = $1 returning *)
       insert into ${database.schema}.job_event (kind, job_id, tree_id, type, "from", "to", phase, wave, attempt, version, actor)
       select 'moved', id, tree_id, type, 'running', 'cancelled', phase, wave, attempt, version, 'sql' from gone`,
      [handle.id],
    )
    await ended.opened
    expect(reasons).toEqual(['CANCELLED'])
  })

  test('a deleted job’s handler is told, and its result refused', async () => {
    const { job, reasons, running, ended } = waiting()
    const { engine } = await engineWith([job])
    const handle = await engine.enqueue(job.with())
    await running.opened
    const waited = engine.waitFor(handle, deadline).catch((error: unknown) => error)
    await engine.deleteJob(handle.id)
    await ended.opened
    expect(reasons).toEqual(['CANCELLED'])
    expect(await waited).toMatchObject({ code: 'NOT_FOUND' })
    expect(await engine.job(handle.id)).toBeNull()
  })

  test('a job taken away while it runs: LEASE_LOST, and its late result is refused', async () => {
    const { job, reasons, running, goOn, ended } = waiting()
    const { engine } = await engineWith([job], { heartbeat: 200 })
    const handle = await engine.enqueue(job.with())
    await running.opened
    await database.pool.query(
      `update ${database.schema}.job set claim_token = gen_random_uuid(), worker_id = $2 where id = $1`,
      [handle.id, randomUUID()],
    )
    await ended.opened
    expect(reasons).toEqual(['LEASE_LOST'])
    // Nobody has it now: it goes back, and runs again to its end.
    goOn.open()
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'completed' })
    expect(await engine.job(handle.id)).toMatchObject({ attempt: 2, retryCount: 1 })
  })

  test('a paused running job goes on, and lands in PAUSED where it would retry or wait', async () => {
    const running = createGate()
    const goOn = createGate()
    const job = defineJob(
      { type: named('paused') },
      {
        ...fast,
        async run(ctx) {
          if (ctx.attempt > 1) return 'resumed'
          running.open()
          await goOn.opened
          throw new Error('retry me')
        },
      },
    )
    const { engine } = await engineWith([job])
    const handle = await engine.enqueue(job.with())
    await running.opened
    expect((await engine.pauseJob(handle.id)).job.state).toBe('running')
    goOn.open()
    await until(async () => (await engine.job(handle.id))?.state === 'paused')
    expect(await engine.job(handle.id)).toMatchObject({ pausedFrom: 'queued', retryCount: 1 })
    await engine.resumeJob(handle.id)
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: 'resumed' })
  })
})
