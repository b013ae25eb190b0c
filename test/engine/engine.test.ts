import { randomUUID } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { createEngine, declareJob, defineJob, UnavailableError, ValidationError } from '../../src/index.ts'
import { createTestEngine } from '../support/engine.ts'
import { createGate } from '../support/gate.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()
const { engineWith } = engines

const rejection = (promise: Promise<unknown>) =>
  promise.then(
    () => undefined,
    (error: unknown) => error,
  )

describe('options', () => {
  test('are checked, all at once', () => {
    const error = (() => {
      try {
        return createEngine({
          connectionString: '',
          schema: 'a b',
          concurrency: 0,
          heartbeat: 'often',
          poll: 1,
          queues: [],
          retention: { completed: 'soon', failed: '30d', events: '5s' },
          worker: true,
        })
      } catch (error) {
        return error
      }
    })()
    expect(error).toBeInstanceOf(ValidationError)
    expect((error as ValidationError).issues.map((issue) => issue.path.join('.')).sort()).toEqual([
      'concurrency',
      'connectionString',
      'heartbeat',
      'jobs',
      'poll',
      'queues',
      'retention.completed',
      'retention.events',
      'schema',
    ])
  })

  test('a database that is not there is UNAVAILABLE, for start and for verbs; then it may be started again', async () => {
    const engine = createEngine({ connectionString: 'postgres://nobody@127.0.0.1:1/none' })
    expect(await rejection(engine.start())).toBeInstanceOf(UnavailableError)
    expect(await rejection(engine.start())).toBeInstanceOf(UnavailableError)
    expect(await rejection(engine.enqueue({ type: 'x' }))).toBeInstanceOf(UnavailableError)
    expect(await rejection(engine.job(randomUUID()))).toBeInstanceOf(UnavailableError)
    await engine.stop()
  })

  test('without migrating, a schema that does not fit is refused', async () => {
    const { engine } = await engineWith([], { start: false, schema: 'empty', migrate: false })
    expect(await rejection(engine.start())).toMatchObject({ code: 'SCHEMA_TOO_OLD' })
  })

  test('a schema of one’s own is made, and two installations in one database do not see each other', async () => {
    const type = named('apart')
    const jobOf = (name: string) => defineJob({ type }, { run: () => name })
    const a = await engineWith([jobOf('a')], { schema: 'Apart_A' })
    const b = await engineWith([jobOf('b')], { schema: 'apart_b' })
    const inA = await a.engine.enqueue({ type })
    const inB = await b.engine.enqueue({ type })
    expect(await a.engine.waitFor(inA, deadline)).toMatchObject({ result: 'a' })
    expect(await b.engine.waitFor(inB, deadline)).toMatchObject({ result: 'b' })
    expect(await a.engine.job(inB.id)).toBeNull()
  })
})

describe('enqueueing', () => {
  test('gives bare ids in order, and takes both forms', async () => {
    const { engine } = await engineWith([], { start: false })
    const handles = await engine.enqueueMany([
      { type: 'x', priority: 1 },
      { type: 'x', priority: 2 },
    ])
    expect(handles).toEqual(handles.map(() => ({ id: expect.stringMatching(/^[0-9a-f-]{36}$/), deduplicated: false })))
    for (const [index, { id }] of handles.entries()) {
      expect(await engine.job(id)).toMatchObject({ id, priority: index + 1 })
      expect(await engine.job(`JB_${id}`)).toMatchObject({ id })
    }
    expect(await rejection(engine.job('nonsense'))).toBeInstanceOf(ValidationError)
    expect(await engine.job(randomUUID())).toBeNull()
  })

  test('a taken key gives the job that has it, and writes nothing of the new tree', async () => {
    const { engine } = await engineWith([], { start: false })
    const job = { type: named('keyed'), key: 'k', children: [{ type: 'child' }] }
    const first = await engine.enqueue(job)
    expect(await engine.enqueue({ ...job, children: [{ type: 'child' }, { type: 'child' }] })).toEqual({
      id: first.id,
      deduplicated: true,
    })
    expect(await engine.job(first.id)).toMatchObject({ childCount: 1 })
  })

  test('is all or nothing, and names what is wrong by its place', async () => {
    const { engine } = await engineWith([], { start: false })
    const type = named('all')
    const one = await rejection(engine.enqueue({ type, payload: 'a\0b' }))
    expect(one).toMatchObject({ code: 'VALIDATION', issues: [{ path: ['payload'] }] })
    const many = await rejection(engine.enqueueMany([{ type }, { type, priority: 0.5 }]))
    expect(many).toMatchObject({ code: 'VALIDATION', issues: [{ path: ['1', 'priority'] }] })
    const { rows } = await engines.database.pool.query(
      `select id from ${engines.database.schema}.job where type = $1`,
      [type],
    )
    expect(rows).toEqual([])
  })

  test('the event log names the actor, of the engine or of the call', async () => {
    const { engine, events } = await engineWith([], { start: false, actor: 'the tests' })
    const handle = await engine.enqueue({ type: 'x' })
    await engine.cancelJob(handle.id, { actor: 'somebody', reason: 'no need' })
    expect(await events(handle.id)).toMatchObject([
      { kind: 'created', actor: 'the tests' },
      { kind: 'moved', actor: 'somebody', reason: 'no need' },
    ])
  })

  test('from an engine that was not started: a worker elsewhere hears of it without a poll', async () => {
    const job = defineJob({ type: named('heard') }, { run: () => 'heard' })
    await engineWith([job], { poll: 60_000 })
    const { engine } = await engineWith([], { start: false, poll: 50 })
    // The first may come before the worker's first claim; the others cannot.
    for (let n = 0; n < 3; n++) {
      const end = await engine.waitFor(await engine.enqueue({ type: job.type }), deadline)
      expect(end).toMatchObject({ state: 'completed', result: 'heard' })
    }
  })
})

describe('waiting', () => {
  test('gives up after its time, and costs nothing after that', async () => {
    const { engine } = await engineWith([], { start: false })
    const handle = await engine.enqueue({ type: 'never' })
    expect(await rejection(engine.waitFor(handle, { timeoutMs: 50 }))).toMatchObject({ code: 'WAIT_TIMEOUT' })
  })

  test('for a job that is over, and one that never was', async () => {
    const { engine } = await engineWith([], { start: false })
    const handle = await engine.enqueue({ type: 'x' })
    await engine.cancelJob(handle.id)
    expect(await engine.waitFor(`JB_${handle.id}`)).toMatchObject({ state: 'cancelled', cancelCode: 'requested' })
    expect(await rejection(engine.waitFor(randomUUID()))).toMatchObject({ code: 'NOT_FOUND' })
  })

  test('many for one, and one for many, in a statement for all', async () => {
    const gate = createGate()
    const job = defineJob({ type: named('awaited') }, { run: () => gate.opened })
    const { engine } = await engineWith([job], { concurrency: 20 })
    const handles = await engine.enqueueMany(Array.from({ length: 300 }, () => job.with()))
    const waited = handles.flatMap((handle) => [engine.waitFor(handle, deadline), engine.waitFor(handle, deadline)])
    gate.open()
    expect((await Promise.all(waited)).every((end) => end.state === 'completed')).toBe(true)
  })

  test('a result that is not what the contract says is an error', async () => {
    const type = named('drifted')
    const { engine } = await engineWith([defineJob({ type }, { run: () => 'text' })])
    const stranger = declareJob({ type, result: z.number() })
    const handle = await engine.enqueue(stranger.with())
    expect(await rejection(engine.waitFor(handle, deadline))).toMatchObject({ code: 'VALIDATION' })
    expect(await engine.waitFor(handle.id)).toMatchObject({ result: 'text' })
  })
})

test('the feed tells what happens, as an async iterable', async () => {
  const job = defineJob({ type: named('told') }, { run() {} })
  const { engine } = await engineWith([job])
  const feed = engine.feed({ filter: { types: [job.type] } })
  await feed.next()
  const { id } = await engine.enqueue(job.with())
  const moves: string[] = []
  for await (const { events } of feed) {
    moves.push(...events.filter((event) => event.jobId === id).map((event) => `${event.from}>${event.to}`))
    if (moves.length === 3) break
  }
  expect(moves).toEqual(['null>queued', 'queued>running', 'running>completed'])
})

test('an engine that cannot go on says so, and has stopped', async () => {
  const job = defineJob({ type: named('x') }, { run() {} })
  const own = await createTestEngine({ jobs: [job], poll: 50 })
  try {
    const { engine, fatal, test } = own
    await test.pool.query(`alter table ${test.schema}.job rename column claimed_at to claimed`)
    await until(() => fatal.length > 0)
    expect(fatal).toMatchObject([{ code: '42703' }])
    expect(engine.running).toBe(false)
    expect(await rejection(engine.start())).toBeInstanceOf(UnavailableError)
    expect((await test.pool.query(`select id from ${test.schema}.worker`)).rows).toEqual([])
  } finally {
    await own.close()
  }
})

test('an assignee that is set active has its jobs run', async () => {
  const job = defineJob({ type: named('assigned') }, { run: () => 'ran' })
  const { engine } = await engineWith([job])
  const assigneeId = named('assignee')
  await engine.setAssignee(assigneeId, 'paused')
  const [withheld, free] = await engine.enqueueMany([job.with({}, { assigneeId }), job.with()])
  await engine.waitFor(free!, deadline)
  expect(await engine.job(withheld!.id)).toMatchObject({ state: 'queued' })
  expect(await engine.setAssignee(assigneeId, 'active')).toMatchObject({ assignee: { status: 'active' }, woken: [] })
  expect(await engine.waitFor(withheld!, deadline)).toMatchObject({ result: 'ran' })
})
