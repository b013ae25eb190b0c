import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { declareJob, defineJob } from '../../src/index.ts'
import { createGate } from '../support/gate.ts'
import { limitedJobs, MOST_AT_ONCE, perUser, single, unlimited, WATCH } from '../support/limited-jobs.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()
const { engineWith } = engines
const PROGRAM = fileURLToPath(new URL('../support/programs/limited-worker.ts', import.meta.url))

/** Counts up where a job begins to run, and down where it ends, in the order of the log; the most of each type and key. */
const MOST_IN_LOG = (schema: string) => `
  select type, key, max(running)::int as most from (
    select j.type, j.concurrency_key as key,
      sum((e."to" = 'running')::int - (e."from" = 'running')::int) over (partition by j.type, j.concurrency_key order by e.id)
        as running
    from ${schema}.job_event e join ${schema}.job j on j.id = e.job_id
    where e.kind = 'moved' and j.concurrency_key is not null) counted
  group by type, key order by type, key`

describe('over all processes', () => {
  let pool: pg.Pool
  beforeAll(async () => {
    pool = new pg.Pool({ connectionString: engines.database.connectionString, max: 10 })
    await pool.query(WATCH)
  })
  afterAll(() => pool.end())

  /** A worker in a process of its own. */
  async function startProcess() {
    const child = spawn(
      process.execPath,
      ['--import', import.meta.resolve('tsx'), PROGRAM, engines.database.connectionString],
      { stdio: ['pipe', 'pipe', 'inherit'] },
    )
    const exited = once(child, 'exit')
    await Promise.race([
      once(child.stdout, 'data'),
      exited.then(([code]) => Promise.reject(new Error(`it ended with ${code}`))),
    ])
    return async () => {
      child.stdin.end()
      await exited
    }
  }

  test('four workers in three processes never run more than the limit, and come to it', async () => {
    const { schema } = engines.database
    const stops = await Promise.all([startProcess(), startProcess()])
    try {
      const { engine } = await engineWith(limitedJobs(pool), { concurrency: 12, poll: 200 })
      await engineWith(limitedJobs(pool), { concurrency: 12, poll: 200 })
      const users = ['ann', 'ben', 'cid']
      const jobs = Array.from({ length: 210 }, (_, n) => {
        const payload = { user: users[n % 3]!, failures: n % 10 === 0 ? 2 : 0 }
        if (n % 7 === 0) return single.with(payload)
        return n % 7 === 1 ? unlimited.with(payload) : perUser.with(payload)
      })
      const handles = await engine.enqueueMany(jobs)
      const ends = await Promise.all(handles.map((handle) => engine.waitFor(handle.id, deadline)))
      expect(ends.map((end) => end.state)).toEqual(jobs.map(() => 'completed'))
      const limited = [
        ...users.map((key) => ({ type: 'per-user', key, most: 3 })),
        { type: 'single', key: '', most: 1 },
      ]
      expect((await pool.query(MOST_IN_LOG(schema))).rows).toEqual(limited)
      const { rows: seen } = await pool.query(MOST_AT_ONCE)
      // What was seen can fall short of what was so, but never exceed it; and without a limit it is seen to be more.
      for (const { type, key, most } of limited) {
        const one = seen.find((row) => row.type === type && row.key === key)
        expect(one.most, `${type} ${key}`).toBeLessThanOrEqual(most)
      }
      expect(seen.find((row) => row.type === 'unlimited').most).toBeGreaterThan(3)
      const workers = await pool.query(
        `select count(distinct actor)::int as n from ${schema}.job_event where "to" = 'running'`,
      )
      expect(workers.rows[0].n).toBe(4)
    } finally {
      await Promise.all(stops.map((stop) => stop()))
    }
  })
})

describe('a worker', () => {
  test('takes the next job of a key as soon as it has freed a slot itself, with no bell and a long poll', async () => {
    // Longer than the worker looks for more by itself after a claim that brought something.
    const run = () => sleep(150)
    const job = defineJob({ type: named('chain') }, { concurrency: { limit: 1 }, run })
    const { engine } = await engineWith([job], { poll: '1h', pollOnly: true, concurrency: 10 })
    const handles = await engine.enqueueMany(Array.from({ length: 6 }, () => job.with()))
    for (const handle of handles) expect((await engine.waitFor(handle, deadline)).state).toBe('completed')
  })

  test('hears of slots that others free', async () => {
    const gate = createGate()
    const type = named('shared')
    const started: string[] = []
    const define = (who: string) =>
      defineJob(
        { type },
        {
          concurrency: { limit: 1 },
          async run(ctx) {
            started.push(`${who} ${ctx.id}`)
            if (started.length === 1) await gate.opened
          },
        },
      )
    const first = define('first')
    const one = await engineWith([first], { poll: '1h', concurrency: 1 })
    const [held] = await one.engine.enqueueMany([first.with()])
    await until(() => started.length === 1)
    await engineWith([define('second')], { poll: '1h' })
    const next = await one.engine.enqueue(first.with())
    // The first one's handler goes on all the same, and its only slot is taken: the second one is to run the next job.
    await one.engine.cancelJob(held!.id)
    expect((await one.engine.waitFor(next, deadline)).state).toBe('completed')
    gate.open()
    expect(started).toHaveLength(2)
  })
})

describe('keys', () => {
  const contract = declareJob({
    type: named('keyed'),
    payload: z.object({ user: z.string().transform((user) => user.toUpperCase()) }),
  })
  const definition = defineJob(contract, {
    concurrency: { limit: 1, key: ({ user }) => `user ${user}` },
    run: () => {},
  })
  const keyOf = async (id: string) =>
    (
      await engines.database.pool.query(
        `select concurrency_key as key from ${engines.database.schema}.job where id = $1`,
        [id],
      )
    ).rows[0].key

  test('are computed at the door, from the payload as the handler gets it', async () => {
    const { engine } = await engineWith([definition], { worker: false })
    expect(await keyOf((await engine.enqueue(contract.with({ user: 'ann' }))).id)).toBe('user ANN')
    expect(await keyOf((await engine.enqueue(contract.with({ user: 'ann' }, { concurrencyKey: 'own' }))).id)).toBe(
      'own',
    )
    expect(await keyOf((await engine.enqueue({ type: named('unknown') })).id)).toBeNull()
  })

  test('jobs that were enqueued without one, where nobody knew the type, get theirs and run', async () => {
    const outside = await engineWith([], { start: false })
    const handles = await outside.engine.enqueueMany([
      ...Array.from({ length: 1200 }, (_, n) => contract.with({ user: `u${n % 40}` })),
      // Nothing the function can be asked with: it runs under the empty key, and its handler refuses it.
      { type: contract.type, payload: { user: 7 } },
    ])
    expect(await keyOf(handles[0]!.id)).toBeNull()
    const { engine, log } = await engineWith([definition], { concurrency: 50 })
    const ends = await Promise.all(handles.map((handle) => engine.waitFor(handle.id, deadline)))
    expect(ends.slice(0, -1).filter((end) => end.state !== 'completed')).toEqual([])
    expect(ends.at(-1)).toMatchObject({ state: 'failed', errorCode: 'VALIDATION' })
    expect(await keyOf(handles[0]!.id)).toBe('user U0')
    expect(await keyOf(handles.at(-1)!.id)).toBe('')
    expect(log.map((line) => line.msg)).toContain('The job has no concurrency key: it counts under the empty one')
    const { pool, schema } = engines.database
    const { rows } = await pool.query(`select * from (${MOST_IN_LOG(schema)}) most where type = $1 and most > 1`, [
      contract.type,
    ])
    expect(rows).toEqual([])
  })

  test('a job without one behind thousands that are blocked is found', async () => {
    const gate = createGate()
    const type = named('crowded')
    const payload = z.object({ user: z.string() })
    const crowded = defineJob(
      { type, payload },
      {
        concurrency: { limit: 1, key: ({ user }) => user },
        async run(ctx) {
          if (ctx.payload.user === 'full') await gate.opened
        },
      },
    )
    const { engine } = await engineWith([crowded], { poll: 200 })
    const full = await engine.enqueueMany(Array.from({ length: 3000 }, () => crowded.with({ user: 'full' })))
    const outside = await engineWith([], { start: false })
    const late = await outside.engine.enqueue({ type, payload: { user: 'late' } })
    expect((await engine.waitFor(late.id, deadline)).state).toBe('completed')
    const { pool, schema } = engines.database
    await pool.query(`delete from ${schema}.job where id = any($1::uuid[]) and state = 'queued'`, [
      full.map((job) => job.id),
    ])
    gate.open()
  })
})
