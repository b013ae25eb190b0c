import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { renewEpoch } from '../../src/engine/feed/epoch.ts'
import type { Feed } from '../../src/engine/feed/hub.ts'
import { createFeedReader } from '../../src/engine/feed/reader.ts'
import { eventRetention } from '../../src/engine/maintenance/handlers/event-retention.ts'
import { createMetrics } from '../../src/engine/metrics.ts'
import { leaveMark } from '../../src/engine/retention/prune-events.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { createTestEngine } from '../support/engine.ts'
import { maintenanceContext } from '../support/maintenance.ts'
import { plansOf } from '../support/plans.ts'
import { until } from '../support/until.ts'
import { collect, type FeedProcess, nextBatch, startFeed, writeEvent, writeEvents } from './feed-support.ts'

const HALF_AN_HOUR = 1_800_000

let database: TestDatabase
let process: FeedProcess
let feed: Feed
beforeAll(async () => {
  database = await createTestDatabase()
  process = await startFeed(database)
  feed = process.feed
})
afterEach(() => sql('truncate coppice.job_event, coppice.feed_mark'))
afterAll(async () => {
  await process?.close()
  await database?.drop()
})

const sql = async (text: string, parameters: unknown[] = []) => (await database.pool.query(text, parameters)).rows
const kept = async () => (await sql('select id from coppice.job_event order by id')).map((row) => row.id)
const floor = async () => BigInt((await sql('select floor from coppice.feed_floor'))[0].floor)
const prune = (context = maintenanceContext(process.db), batch?: number) =>
  eventRetention(60_000, HALF_AN_HOUR, batch).run(context)
const anHourPasses = () =>
  sql(`update coppice.feed_mark set at = at - interval '1 hour', open_since = open_since - interval '1 hour'`)

/** Leaves a mark above everything that is written. (Transactions of other databases of the server hold marks down, too.) */
async function mark(): Promise<void> {
  await until(async () => {
    await leaveMark(process.db)
    const [row] = await sql(
      `select max(floor::text::numeric) > (select max(xid::text::numeric) from coppice.job_event) as above from coppice.feed_mark`,
    )
    return row.above
  })
}

/** What all reads of the feed from a cursor bring. */
async function readAll(after?: string): Promise<string[]> {
  const ids: string[] = []
  for (let cursor = after; ; ) {
    const batch = await feed.read({ after: cursor, first: 100 })
    ids.push(...batch.events.map((event) => event.id))
    if (batch.caughtUp) return ids
    cursor = batch.cursor
  }
}

describe('events', () => {
  it('are deleted once a mark above them is as old as they are to be kept; each run leaves a mark', async () => {
    await writeEvents(database.pool, 10)
    await prune()
    expect(await kept()).toHaveLength(10)
    await mark()
    const young = await writeEvent(database.pool)
    await anHourPasses()
    const metrics = createMetrics()
    const before = await floor()
    await prune(maintenanceContext(process.db, { metrics }))
    expect(await kept()).toEqual([young])
    expect((await metrics.retentionEventsDeleted.get()).values[0]!.value).toBe(10)
    expect(await floor()).toBeGreaterThan(before)
    // Of the marks that are old enough only the last is of any more use; this run has left another.
    expect(await sql(`select at < now() - interval '30 minutes' as old from coppice.feed_mark order by at`)).toEqual([
      { old: true },
      { old: false },
    ])
  })

  it('go in bounded batches, and all of them go', async () => {
    for (let round = 0; round < 5; round++) await writeEvents(database.pool, 7)
    await mark()
    await anHourPasses()
    let batches = 0
    const { db } = process
    const counting = {
      ...db,
      get pool() {
        batches += 1
        return db.pool
      },
    }
    await prune(maintenanceContext(counting), 10)
    expect(await kept()).toEqual([])
    // 35 of them; a transaction takes its connection from the pool.
    expect(batches).toBe(4)
  })

  it('stop going when the loop stops; the floor is that of all of them from the first', async () => {
    await writeEvents(database.pool, 20)
    await mark()
    await anHourPasses()
    const { cursor } = await feed.read({ first: 5 })
    const stopped = AbortSignal.abort()
    await prune(maintenanceContext(process.db, { signal: stopped }), 10)
    expect(await kept()).toHaveLength(20)
    expect(await readAll(cursor)).toHaveLength(15)
    await prune(maintenanceContext(process.db), 15)
    expect(await kept()).toEqual([])
  })

  it('that an open transaction hides the order of are kept for that much longer, which a gauge tells', async () => {
    const client = await database.pool.connect()
    try {
      await client.query('begin')
      await client.query('select pg_current_xact_id()')
      const later = await writeEvent(database.pool)
      await leaveMark(process.db)
      await anHourPasses()
      await sql(`update coppice.feed_mark set open_since = open_since - interval '5 minutes'`)
      const metrics = createMetrics()
      await prune(maintenanceContext(process.db, { metrics }))
      expect(await kept()).toEqual([later])
      expect((await metrics.eventRetentionHeld.get()).values[0]!.value).toBeGreaterThan(300)
      // It commits an event of before: a cursor that was made meanwhile has yet to read it.
      const { cursor } = await feed.read()
      const late = await writeEvent(client)
      await client.query('commit')
      expect(await readAll(cursor)).toEqual([late])
    } finally {
      // Whatever has failed, nobody is to wait for it.
      await client.query('rollback')
      client.release()
    }
    await mark()
    await anHourPasses()
    await prune()
    expect(await kept()).toEqual([])
  })

  it('show how long the oldest transaction is open also before anything is old enough', async () => {
    const client = await database.pool.connect()
    try {
      await client.query('begin')
      const { rows } = await client.query('select pg_current_xact_id(), now() as since')
      const metrics = createMetrics()
      await prune(maintenanceContext(process.db, { metrics }))
      const [{ age }] = await sql('select extract(epoch from max(at) - $1)::float8 as age from coppice.feed_mark', [
        rows[0].since,
      ])
      expect(age).toBeGreaterThan(0)
      expect((await metrics.eventRetentionHeld.get()).values[0]!.value).toBeGreaterThanOrEqual(age - 0.001)
    } finally {
      await client.query('rollback')
      client.release()
    }
  })
})

describe('a cursor', () => {
  it('from before the deletion expires, a younger one does not, and a live subscriber misses nothing', async () => {
    const live = feed.subscribe()
    await nextBatch(live)
    const old = (await feed.read()).cursor
    await writeEvents(database.pool, 50)
    process.doorbell.ring()
    await collect(live, 50)
    await mark()
    // Who reads at all has read within the hour that is about to pass.
    const seen = await writeEvent(database.pool)
    process.doorbell.ring()
    expect((await collect(live, 1)).ids).toEqual([seen])
    const { cursor: young } = await feed.read({ after: old, first: 100 })
    const next = await writeEvent(database.pool)
    await anHourPasses()
    await prune()
    expect(await kept()).toEqual([seen, next])

    await expect(feed.read({ after: old })).rejects.toMatchObject({ code: 'CURSOR_EXPIRED' })
    const expired = await nextBatch(feed.subscribe({ after: old }))
    expect(expired).toMatchObject({ events: [], ended: 'cursor_expired' })

    expect(await readAll(young)).toEqual([next])
    process.doorbell.ring()
    expect((await collect(live, 1)).ids).toEqual([next])
    await live.return?.()

    const resumed = feed.subscribe({ after: young })
    const { ids, cursor } = await collect(resumed, 1)
    expect(ids).toEqual([next])
    const after = await writeEvent(database.pool)
    process.doorbell.ring()
    expect((await collect(resumed, 1)).ids).toEqual([after])
    await resumed.return?.()
    expect(await readAll(cursor)).toEqual([after])
  })

  it('in the middle of a long read expires with the events that it has yet to read', async () => {
    await writeEvents(database.pool, 30)
    const { cursor } = await feed.read({ first: 10 })
    await mark()
    await anHourPasses()
    await prune()
    await expect(feed.read({ after: cursor })).rejects.toMatchObject({ code: 'CURSOR_EXPIRED' })
  })

  it('of the oldest event that is kept is none that has expired', async () => {
    await writeEvents(database.pool, 30)
    await mark()
    const ids = [await writeEvent(database.pool), await writeEvent(database.pool)]
    await anHourPasses()
    await prune()
    const reader = createFeedReader(process.db)
    const oldest = await reader.oldest()
    expect(oldest.from.xmin).toBeGreaterThanOrEqual(await floor())
    const batch = await reader.readBatch(oldest)
    expect(batch.events.map((event) => event.id)).toEqual(ids)
    expect(await readAll()).toEqual(ids)
  })
})

describe('marks of another database', () => {
  it('are not believed before there is an epoch, and are forgotten when there is', async () => {
    await writeEvents(database.pool, 10)
    await mark()
    await anHourPasses()
    // As in a dump that was restored: xids of the past are far ahead.
    await sql(`update coppice.feed_mark set floor = (floor::text::numeric + 1000000)::text::xid8`)
    await sql(`update coppice.feed_epoch set system_identifier = 1`)
    await prune()
    expect(await kept()).toHaveLength(10)
    await renewEpoch(process.db)
    expect(await sql(`select 1 from coppice.feed_mark where at < now() - interval '30 minutes'`)).toEqual([])
    await prune()
    expect(await kept()).toHaveLength(10)
  })

  it('are not believed either when they lie in the future of one that has an epoch', async () => {
    await writeEvents(database.pool, 10)
    await mark()
    await anHourPasses()
    await sql(`update coppice.feed_mark set floor = (floor::text::numeric + 1000000)::text::xid8`)
    await prune()
    expect(await kept()).toHaveLength(10)
  })
})

it('reads what it deletes by its index, and nothing else', async () => {
  const fill = async () => {
    await sql('truncate coppice.job_event, coppice.feed_mark')
    for (let round = 0; round < 10; round++) await writeEvents(database.pool, 30)
    await mark()
    await anHourPasses()
    for (let round = 0; round < 20; round++) await writeEvents(database.pool, 1000)
    await sql(
      `insert into coppice.feed_mark select now() - n * interval '1 second', '3', now() from generate_series(1, 1500) n`,
    )
  }
  await fill()
  for (const analyzed of [false, true]) {
    if (analyzed) await sql('analyze coppice.job_event, coppice.feed_mark')
    const plans = await plansOf(process.db, (db) => prune(maintenanceContext(db), 100), fill)
    expect(plans.map((plan) => plan.name)).toEqual([
      'retention.mark',
      'retention.find-mark',
      ...Array.from({ length: 4 }, () => ['retention.raise-floor', 'retention.delete-events']).flat(),
      'retention.forget-marks',
    ])
    for (const plan of plans) {
      expect(plan.text, `${plan.name}\n${plan.text}`).not.toMatch(/Seq Scan job_event/)
      // Marks are one a minute, however large the log: a page of them is soon read through.
      if (plan.name === 'retention.forget-marks') continue
      expect(plan.read, `${plan.name}\n${plan.text}`).toBeLessThan(700)
    }
  }
})

it('an engine that is told how long to keep events leaves marks from its start', async () => {
  const { engine, close } = await createTestEngine({ test: database, retention: { events: '1h' } })
  try {
    await until(async () => (await sql('select 1 from coppice.feed_mark')).length > 0)
    expect(await engine.metrics.metrics()).toMatch(/^coppice_event_retention_held_seconds \d/m)
  } finally {
    await close()
  }
  const silent = await createTestEngine({ test: database })
  const names = (await sql('select name from coppice.maintenance')).map((row) => row.name)
  await silent.close()
  expect(names).toContain('event-retention')
  expect(names).not.toContain('job-retention')
})
