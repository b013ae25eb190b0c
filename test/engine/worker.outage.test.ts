import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { z } from 'zod'
import { removeEmbeddedData } from '../../src/db/embedded/remove.ts'
import { type EmbeddedServer, startEmbeddedServer } from '../../src/db/embedded/server.ts'
import { declareJob, defineJob, UnavailableError } from '../../src/index.ts'
import type { TestDatabase } from '../support/database.ts'
import { createTestEngine, type TestEngine } from '../support/engine.ts'
import { createGate } from '../support/gate.ts'
import { findViolations } from '../support/invariants.ts'
import { until } from '../support/until.ts'
import { startProxy } from './feed-proxy.ts'

let folder: string
let server: EmbeddedServer
let database: TestDatabase
const open: TestEngine[] = []

beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-outage-'))
  server = await startEmbeddedServer({ dataDir: folder, durable: false })
  const { connectionString } = server
  const pool = new pg.Pool({ connectionString, max: 3 })
  pool.on('error', () => {})
  database = { connectionString, schema: 'coppice', pool, drop: () => pool.end() }
})
afterEach(async () => {
  await Promise.all(open.splice(0).map((one) => one.close()))
  expect(await findViolations(database.pool, { atRest: true })).toEqual([])
})
afterAll(async () => {
  await database.drop()
  await server.stop()
  await removeEmbeddedData(folder)
  await rm(folder, { recursive: true, force: true })
})

async function engineWith(options: Parameters<typeof createTestEngine>[0] = {}) {
  const one = await createTestEngine({ test: database, heartbeat: 300, ...options })
  open.push(one)
  return one
}

const deadline = { timeoutMs: 50_000 }
const OUT_OF_REACH = 'The database is out of reach: trying on until it is back'

const leaf = declareJob({ type: 'leaf', payload: z.object({ n: z.number() }), result: z.number() })
const leafJob = defineJob(leaf, {
  async run(ctx) {
    ctx.progress(1, 2)
    await ctx.save(ctx.payload.n)
    ctx.progress(2, 2)
    return ctx.payload.n
  },
})
const sum = declareJob({ type: 'sum', payload: z.object({ n: z.number() }), result: z.number() })
const sumJob = defineJob(sum, {
  ingest: async (ctx) => {
    await ctx.spawn(Array.from({ length: ctx.payload.n }, (_, n) => leaf.with({ n })))
  },
  async aggregate(ctx) {
    let total = 0
    for await (const child of ctx.children(leaf, { states: ['completed'] })) total += child.result
    return total
  },
})

test('connections cut all the time, under a load of trees: nothing is lost, nothing runs twice to an end, no retry is spent', async () => {
  const one = await engineWith({ jobs: [leafJob, sumJob], concurrency: 30 })
  const handles = await one.engine.enqueueMany(Array.from({ length: 40 }, () => sum.with({ n: 25 })))
  const waited = Promise.all(handles.map((handle) => one.engine.waitFor(handle, deadline)))
  const ended = async () => {
    const { rows } = await database.pool.query(`select count(*)::int as n from coppice.job where state = 'completed'`)
    return rows[0].n as number
  }
  // Each cut comes as soon as some jobs have got through since the last: in the middle of whatever is under way then.
  let cuts = 0
  for (let seen = 0; seen < 40 * 26; seen = await ended()) {
    const { rowCount } = await database.pool.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where datname = current_database() and pid <> pg_backend_pid() and application_name = 'coppice'`,
    )
    cuts += rowCount ?? 0
    await until(async () => (await ended()) > seen, { timeout: 40_000 })
  }
  expect(cuts).toBeGreaterThan(20)
  const ends = await waited
  for (const end of ends) expect(end).toMatchObject({ state: 'completed', result: 300 })
  const { rows } = await database.pool.query(
    'select count(*)::int as jobs, sum(retry_count)::int as retries from coppice.job',
  )
  expect(rows[0]).toEqual({ jobs: 40 * 26, retries: 0 })
  const { rows: twice } = await database.pool.query(
    `select job_id from coppice.job_event where "to" = 'completed' group by job_id having count(*) > 1`,
  )
  expect(twice).toEqual([])
  expect(one.fatal).toEqual([])
})

test('the server crashes while handlers run: their results are kept, and settled when it is back; told once', async () => {
  const started = createGate()
  const goOn = createGate()
  const job = defineJob(
    { type: 'kept' },
    {
      async run(ctx) {
        started.open()
        await goOn.opened
        // Neither costs a retry: both wait until the database is back.
        await ctx.save('saved in the outage')
        return (await ctx.childCounts()).total
      },
    },
  )
  const quick = defineJob(
    { type: 'quick' },
    {
      async run() {
        await goOn.opened
        return 'kept'
      },
    },
  )
  const { engine, log, fatal } = await engineWith({ jobs: [job, quick] })
  const [slow, fast] = [await engine.enqueue(job.with()), await engine.enqueue(quick.with())]
  await started.opened
  await until(async () => (await engine.job(fast.id))?.state === 'running')
  const waited = engine.waitFor(slow, deadline)
  await server.kill()
  await expect(engine.enqueue(job.with())).rejects.toBeInstanceOf(UnavailableError)
  goOn.open()
  await until(() => log.some((line) => line.msg === OUT_OF_REACH))
  await delay(1500)
  expect(log.filter((line) => line.msg === OUT_OF_REACH)).toHaveLength(1)
  await server.restart()
  expect(await waited).toMatchObject({ state: 'completed', result: 0 })
  expect(await engine.waitFor(fast, deadline)).toMatchObject({ state: 'completed', result: 'kept' })
  expect(await engine.job(slow.id)).toMatchObject({ attempt: 1, retryCount: 0, checkpoint: 'saved in the outage' })
  expect(log.some((line) => /^The database is back after \d+ ms$/.test(line.msg))).toBe(true)
  expect(fatal).toEqual([])
})

test('a stop in the middle of an outage ends all the same, and the job runs elsewhere', async () => {
  const started = createGate()
  const type = 'stopped'
  const job = defineJob(
    { type },
    {
      async run() {
        started.open()
        await new Promise(() => {})
      },
    },
  )
  const { engine, log } = await engineWith({ jobs: [job] })
  const handle = await engine.enqueue(job.with())
  await started.opened
  await server.kill()
  const before = performance.now()
  await engine.stop({ grace: 100 })
  expect(performance.now() - before).toBeLessThan(25_000)
  expect(log.some((line) => line.msg === 'Jobs left to others, for they could not be put back: 1')).toBe(true)
  await server.restart()
  const next = defineJob({ type }, { run: (ctx) => ctx.retryCount })
  const { engine: other } = await engineWith({ jobs: [next] })
  expect(await other.waitFor(handle.id, deadline)).toMatchObject({ state: 'completed', result: 1 })
})

test('connections that hang without an end do not keep a stop from ending', async () => {
  const proxy = await startProxy(database.connectionString)
  const started = createGate()
  const type = 'hanging'
  const job = defineJob(
    { type },
    {
      async run(ctx) {
        started.open()
        await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
        return 'too late to be told'
      },
    },
  )
  const { engine } = await engineWith({
    test: { ...database, connectionString: proxy.connectionString },
    jobs: [job],
    poll: 20,
  })
  const handle = await engine.enqueue(job.with())
  await started.opened
  proxy.mode = 'swallow'
  const before = performance.now()
  await engine.stop({ grace: 100 })
  expect(performance.now() - before).toBeLessThan(40_000)
  await proxy.close()
  const { engine: other } = await engineWith({ jobs: [defineJob({ type }, { run: () => 'elsewhere' })] })
  expect(await other.waitFor(handle.id, deadline)).toMatchObject({ state: 'completed', result: 'elsewhere' })
})
