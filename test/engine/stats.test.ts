import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { countActive, readSummary } from '../../src/engine/stats/statements.ts'
import { createEngine, defineJob, type Engine, type Stats } from '../../src/index.ts'
import { createTestEngine, type TestEngine } from '../support/engine.ts'
import { until } from '../support/until.ts'
import { addWorker, createVerbs } from '../support/verbs.ts'

const leaf = defineJob({ type: 'leaf' }, { run: () => null })
const pair = defineJob({ type: 'pair' }, { ingest: (ctx) => ctx.spawn([leaf.with(), leaf.with()]).then(() => {}) })

let t: TestEngine
let engine: Engine
beforeAll(async () => {
  t = await createTestEngine({ jobs: [leaf, pair] })
  engine = t.engine
})
afterAll(() => t.close())

const sql = (text: string, parameters: unknown[] = []) => t.test.pool.query(text, parameters)

/** On a busy machine a count is slow, and rests for long after it. */
const patient = { timeout: 40_000 }

describe('the figures of an installation', () => {
  test('count all jobs by state, without archived ones', async () => {
    const states = { queued: 4, running: 1, waiting: 3, paused: 2, completed: 5, failed: 6, cancelled: 7 }
    // As maintenance leaves them: what waits is woken by nobody, what runs is held by a worker that is taken to live.
    const worker = await addWorker(t.test)
    for (const [state, count] of Object.entries(states)) {
      await sql(
        `insert into coppice.job (id, tree_id, type, state, finished_at, waiting_since, ephemeral, worker_id, claim_token)
         select id, id, 'other', $1, case when $1 in ('completed', 'failed', 'cancelled') then now() end,
           case when $1 = 'waiting' then now() end, $1 = 'waiting', case when $1 = 'running' then $3::uuid end,
           case when $1 = 'running' then gen_random_uuid() end
         from (select gen_random_uuid() id from generate_series(1, $2::int)) one`,
        [state, count, worker],
      )
    }
    const gone = `update coppice.job set archived_at = now(), version = version + 1 where id in
      (select id from coppice.job where state in ('failed', 'completed') and type = 'other' order by state, id limit 7)`
    await sql(gone)
    const sum = { ...states, completed: 0, failed: 4, total: 21, open: 10 }
    // Terminal ones are counted now and then.
    await until(
      async () => JSON.stringify(sorted((await engine.stats()).jobs)) === JSON.stringify(sorted(sum)),
      patient,
    )
    await sql(`delete from coppice.job where type = 'other'`)
    await sql('delete from coppice.worker where id = $1', [worker])
  })

  test('say since when jobs are due and parents wait', async () => {
    await until(async () => {
      const stats = await engine.stats()
      return stats.jobs.total === 0 && stats.oldestDueAt === null && stats.oldestWaitingAt === null
    }, patient)
    const due = new Date(Date.now() - 60_000)
    await engine.enqueueMany([
      { type: 'unknown', runAt: new Date(Date.now() + 60_000), priority: -1 },
      { type: 'unknown', runAt: due, priority: 5, queue: 'slow' },
      { type: 'unknown', runAt: new Date(Date.now() - 1000) },
    ])
    await engine.enqueue({ type: 'parent', children: [{ type: 'unknown' }] })
    const stats = await until(async () => {
      const found = await engine.stats()
      return found.oldestWaitingAt !== null && found
    }, patient)
    expect(stats.oldestDueAt).toEqual(due)
    expect(Math.abs(stats.at.getTime() - stats.oldestWaitingAt!.getTime())).toBeLessThan(10_000)
    expect(stats.at.getTime()).toBeGreaterThan(due.getTime())
  })

  test('add up the wakes of all processes, also of those that are gone', async () => {
    const before = (await engine.stats()).wakes
    const other = createEngine({ connectionString: t.test.connectionString, jobs: [leaf, pair], poll: 100 })
    await other.start()
    for (const one of [engine, other, engine, other]) {
      await one.waitFor(await one.enqueue(pair.with()), { timeoutMs: 30_000 })
    }
    await other.stop()
    const after = await until(async () => {
      const { wakes } = await engine.stats()
      return wakes.emitted.edge - before.emitted.edge === 4n && wakes
    }, patient)
    expect(after.emitted).toMatchObject({ manual: before.emitted.manual })
    // What is stuck, and that it was found: a wake that nobody delivered.
    const [{ id }] = (
      await sql(
        `insert into coppice.job (id, tree_id, type, state, waiting_since, assignee_id)
         select id, id, 'stuck', 'waiting', now(), null from (select gen_random_uuid() id) one returning id`,
      )
    ).rows as [{ id: string }]
    const found = await until(async () => {
      const { wakes } = await engine.stats()
      return wakes.emitted.reconciler > before.emitted.reconciler && wakes
    }, patient)
    expect(found.candidates).toBeGreaterThan(before.candidates)
    expect((await engine.job(id))!.state).toBe('queued')
    expect(Date.now() - found.lastTickAt!.getTime()).toBeLessThan(10_000)
    expect(found.lastTickMs).toBeGreaterThan(0)
  })

  test('are told again and again, of one reading for all, and none once nobody watches', async () => {
    const statements: string[] = []
    const query = engine.database.query
    engine.database.query = ((statement: { name: string }, parameters: unknown[]) => {
      statements.push(statement.name)
      return query(statement as never, parameters)
    }) as never
    try {
      const watchers = Array.from({ length: 5 }, () => engine.watchStats({ interval: 500 }))
      const told: Stats[][] = watchers.map(() => [])
      const over = watchers.map(async (watcher, n) => {
        for await (const stats of watcher) told[n]!.push(stats)
      })
      const timesOf = (list: Stats[]) => [...new Set(list.map((stats) => stats.at.getTime()))]
      await until(() => told.every((list) => timesOf(list).length >= 3), patient)
      const times = told.map(timesOf)
      for (const list of times) expect(list[2]! - list[0]!).toBeGreaterThan(800)
      // The first figures came at once, for all the same.
      expect(new Set(times.map((list) => list[0])).size).toBe(1)
      const reads = statements.filter((name) => name === 'stats.summary').length
      expect(reads).toBeLessThanOrEqual(Math.max(...told.map((list) => list.length)) + 1)
      for (const watcher of watchers) await watcher.return!()
      await Promise.all(over)
      const left = statements.length
      await expect(until(() => statements.slice(left).includes('stats.summary'), { timeout: 1500 })).rejects.toThrow(
        'in vain',
      )
    } finally {
      engine.database.query = query
    }
    for (const interval of [499, '2d', 'x', -1]) {
      expect(() => engine.watchStats({ interval }), String(interval)).toThrow(/interval/)
    }
  })

  test('are in the registry, as far as the feed goes', async () => {
    const text = async (name: string) =>
      Number(new RegExp(`^${name} (.*)$`, 'm').exec(await engine.metrics.metrics())?.[1])
    await until(async () => (await text('coppice_feed_listening')) === 1)
    expect(await text('coppice_feed_subscribers')).toBe(0)
    const events = engine.feed.subscribe()
    await events.next()
    expect(await text('coppice_feed_subscribers')).toBe(1)
    await events.return!()
    expect(await text('coppice_feed_ring_misses_total')).toBe(0)
    const reconnects = await text('coppice_feed_reconnects_total')
    await sql(`select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name = 'coppice doorbell'`)
    await until(async () => (await text('coppice_feed_reconnects_total')) === reconnects + 1)
    const client = await t.test.pool.connect()
    try {
      await client.query('begin')
      await client.query('select pg_current_xact_id()')
      await until(async () => (await text('coppice_feed_held_up_seconds')) > 0.05)
    } finally {
      await client.query('rollback')
      client.release()
    }
    expect(await text('coppice_feed_lag_seconds')).toBeGreaterThanOrEqual(0)
  })
})

test('the cheap figures read little of a large table, and never all of it', { timeout: 120_000 }, async () => {
  const v = await createVerbs()
  try {
    await v.test.pool.query(`
      insert into coppice.job (id, tree_id, type, queue, priority, state, finished_at, waiting_since, open_children, child_count)
      select id, id, 't' || n % 7, 'q' || n % 3, n % 2,
        case when n % 100 = 0 then 'queued' when n % 100 = 1 then 'waiting' when n % 100 = 2 then 'paused' else 'completed' end,
        case when n % 100 > 2 then now() end, case when n % 100 = 1 then now() end, 1, 1
      from (select gen_random_uuid() id, n from generate_series(1, 100000) n) one`)
    await v.test.pool.query('vacuum analyze coppice.job')
    for (const statement of [readSummary, countActive]) {
      const { rows } = await v.test.pool.query(`explain (analyze, format text) ${v.db.text(statement)}`)
      const plan = rows.map((row) => row['QUERY PLAN']).join('\n')
      expect(plan).not.toMatch(/Seq Scan on job/)
    }
    const { rows } = await v.test.pool.query(`explain (analyze, format text) ${v.db.text(readSummary)}`)
    const plan = rows.map((row) => row['QUERY PLAN']).join('\n')
    // 42 kinds of jobs, a row of each; not the thousand that are queued.
    for (const [, count] of plan.matchAll(/Index.*Scan.*actual time=\S+ rows=(\d+)/g))
      expect(Number(count)).toBeLessThan(50)
  } finally {
    await v.close()
  }
})

function sorted<T>(record: Record<string, T>): [string, T][] {
  return Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1))
}
