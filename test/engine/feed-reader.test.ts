import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Database, openDatabase } from '../../src/db/database.ts'
import type { Statement } from '../../src/db/statement.ts'
import { CursorExpiredError } from '../../src/engine/errors.ts'
import { decodeCursor, encodeCursor, type FeedCursor } from '../../src/engine/feed/cursor.ts'
import type { JobEvent } from '../../src/engine/feed/event.ts'
import { eventMatcher, type JobEventFilter } from '../../src/engine/feed/filter.ts'
import { createFeedReader, type FeedReader, type ReadOptions } from '../../src/engine/feed/reader.ts'
import { formatSnapshot } from '../../src/engine/feed/snapshot.ts'
import { type PageRow, readRest, readWindow } from '../../src/engine/feed/statements.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { until } from '../support/until.ts'
import { writeEvent, writeEvents } from './feed-support.ts'

let database: TestDatabase
let db: Database
let reader: FeedReader

beforeAll(async () => {
  database = await createTestDatabase()
  db = openDatabase({ connectionString: database.connectionString, schema: database.schema })
  reader = createFeedReader(db)
})

afterAll(async () => {
  await db?.close()
  await database?.drop()
})

/** Reads to the end; every cursor goes through its text, as a client would send it. */
async function readAll(from: FeedCursor, options: ReadOptions = {}) {
  const events: JobEvent[] = []
  let cursor = from
  let pages = 0
  for (;;) {
    const batch = await reader.readBatch(decodeCursor(encodeCursor(cursor)), options)
    events.push(...batch.events)
    cursor = batch.cursor
    pages++
    if (batch.caughtUp) return { ids: events.map((event) => event.id), events, cursor, pages }
  }
}

describe('reading the log', () => {
  test('nothing at the end, then what is committed after it, with every field', async () => {
    const { cursor } = await reader.present()
    expect(await readAll(cursor)).toMatchObject({ ids: [], pages: 1 })
    const [jobId, treeId, parentId] = [randomUUID(), randomUUID(), randomUUID()]
    const before = Date.now()
    const id = await writeEvent(database.pool, { jobId, treeId, parentId, version: 7, detail: { error: 'é "x" \\' } })
    const { events, cursor: next } = await readAll(cursor)
    const [event] = events
    expect(events).toEqual([
      {
        id,
        kind: 'moved',
        jobId,
        treeId,
        parentId,
        type: 'noop',
        from: 'queued',
        to: 'running',
        phase: 'ingest',
        wave: 0,
        attempt: 1,
        version: 7,
        at: expect.any(Date),
        actor: 'test',
        reason: null,
        detail: { error: 'é "x" \\' },
      },
    ])
    expect(Math.abs(event!.at.getTime() - before)).toBeLessThan(60_000)
    expect((await readAll(next)).ids).toEqual([])
  })

  test('case 48: a transaction that began first and commits last neither is lost nor holds others back', async () => {
    const { cursor } = await reader.present()
    const early = await database.pool.connect()
    try {
      await early.query('begin')
      const lower = await writeEvent(early)
      const higher = await writeEvent(database.pool)
      expect(BigInt(lower)).toBeLessThan(BigInt(higher))

      const first = await readAll(cursor)
      expect(first.ids).toEqual([higher])
      await early.query('commit')
      const second = await readAll(first.cursor)
      expect(second.ids).toEqual([lower])
      expect((await readAll(second.cursor)).ids).toEqual([])
    } finally {
      early.release()
    }
  })

  test('a transaction that is open when reading begins and has written before is told when it commits', async () => {
    const early = await database.pool.connect()
    try {
      await early.query('begin')
      const first = await writeEvent(early)
      const { cursor } = await reader.present()
      const second = await writeEvent(early)
      await early.query('savepoint gone')
      await writeEvent(early)
      await early.query('rollback to gone')
      await early.query('savepoint kept')
      const third = await writeEvent(early)
      await early.query('release kept')
      expect((await readAll(cursor)).ids).toEqual([])
      await early.query('commit')
      expect((await readAll(cursor)).ids).toEqual([first, second, third])
    } finally {
      early.release()
    }
  })

  test('what is rolled back never comes', async () => {
    const { cursor } = await reader.present()
    const client = await database.pool.connect()
    try {
      await client.query('begin')
      await writeEvent(client)
      const { cursor: during } = await readAll(cursor)
      await client.query('rollback')
      expect((await readAll(cursor)).ids).toEqual([])
      expect((await readAll(during)).ids).toEqual([])
    } finally {
      client.release()
    }
  })

  test('pages of a large window, resumed at every page, with late and new transactions in between', async () => {
    const { cursor } = await reader.present()
    const late = await database.pool.connect()
    try {
      await late.query('begin')
      const lateIds = [await writeEvent(late)]
      await writeEvents(database.pool, 250)
      lateIds.push(await writeEvent(late))
      await writeEvents(database.pool, 250)

      const first = await reader.readBatch(cursor, { first: 60 })
      expect(first).toMatchObject({ caughtUp: false })
      expect(first.events).toHaveLength(60)
      // Both are outside the window that has begun: one commits now, the other is all new.
      await late.query('commit')
      await writeEvents(database.pool, 30)
      const rest = await readAll(first.cursor, { first: 60 })
      expect(rest.pages).toBeGreaterThanOrEqual(8)
      expect(rest.ids.some((id) => lateIds.includes(id))).toBe(false)
      const window = [...first.events.map((event) => event.id), ...rest.ids]
      expect(window).toHaveLength(500)
      expect(window).toEqual([...window].sort((a, b) => Number(BigInt(a) - BigInt(b))))

      const next = await readAll(rest.cursor, { first: 60 })
      expect(next.ids).toHaveLength(32)
      expect(next.ids).toEqual(expect.arrayContaining(lateIds))
      expect(new Set([...window, ...next.ids]).size).toBe(532)
    } finally {
      late.release()
    }
  })

  test('a transaction that commits late with more events than a page, among others', async () => {
    const late = await database.pool.connect()
    try {
      await late.query('begin')
      await writeEvents(late, 80)
      const { cursor } = await reader.present()
      await writeEvents(database.pool, 50)
      await writeEvents(late, 80)
      await writeEvents(database.pool, 50)
      await late.query('commit')
      const { ids, pages } = await readAll(cursor, { first: 30 })
      expect(ids).toHaveLength(260)
      expect(new Set(ids).size).toBe(260)
      expect(ids).toEqual([...ids].sort((a, b) => Number(BigInt(a) - BigInt(b))))
      expect(pages).toBe(9)
    } finally {
      late.release()
    }
  })

  test.each([1, 2, 3, 7])('a page of exactly as many events as there are ends the window (%i)', async (count) => {
    const { cursor } = await reader.present()
    await writeEvents(database.pool, count)
    const all = await readAll(cursor, { first: count })
    expect(all.ids).toHaveLength(count)
    const filtered = await readAll(cursor, { first: count, scan: 2, filter: eventMatcher({ types: ['noop'] }) })
    expect(filtered.ids).toEqual(all.ids)
  })

  test('up to a snapshot: what it shows and no more, also where a transaction open in it has committed since', async () => {
    const { cursor } = await reader.present()
    const open = await database.pool.connect()
    try {
      await open.query('begin')
      const late = await writeEvent(open)
      const shown = await writeEvent(database.pool)
      const target = (await reader.present()).cursor
      await open.query('commit')
      const after = await writeEvent(database.pool)
      const batch = await reader.readBatch(cursor, { upTo: target.from })
      expect(batch.events.map((event) => event.id)).toEqual([shown])
      expect(batch.cursor).toEqual(target)
      expect((await readAll(target)).ids).toEqual([late, after])
    } finally {
      open.release()
    }
  })

  test('from the oldest event, by pages', async () => {
    const { rows } = await database.pool.query('select id from coppice.job_event order by id')
    const all = await readAll(await reader.oldest(), { first: 100 })
    expect(all.ids).toEqual(rows.map((row) => row.id))
    const id = await writeEvent(database.pool)
    expect((await readAll(all.cursor)).ids).toEqual([id])
  })

  test('filters are the same in the database as in memory', async () => {
    const { cursor } = await reader.present()
    const [a, b] = [randomUUID(), randomUUID()]
    const made = [
      { jobId: a, treeId: a, type: 'x', kind: 'created', to: 'queued' },
      { jobId: b, treeId: a, parentId: a, type: 'y', kind: 'created', to: 'waiting' },
      { jobId: b, treeId: a, parentId: a, type: 'y', kind: 'progress', to: 'running' },
      { jobId: a, treeId: a, type: 'x', kind: 'deleted', to: null },
      { type: 'y', kind: 'moved', to: 'failed' },
    ]
    for (const event of made) await writeEvent(database.pool, event)
    const { events } = await readAll(cursor)
    const filters: [JobEventFilter, number][] = [
      [{}, 5],
      [{ treeId: `JB_${a}` }, 4],
      [{ jobIds: [a.toUpperCase(), `JB_${randomUUID()}`] }, 2],
      [{ jobIds: [] }, 0],
      [{ roots: true }, 3],
      [{ roots: false, kinds: ['created'] }, 1],
      [{ types: ['y', 'nul\0'] }, 3],
      [{ types: ['\0'] }, 0],
      [{ to: ['failed', 'waiting'] }, 2],
      [{ to: [] }, 0],
      [{ treeId: a, types: ['y'], kinds: ['progress', 'moved'], to: ['running'], roots: false }, 1],
      [{ treeId: null, jobIds: null, roots: null, types: null, kinds: null, to: null }, 5],
    ]
    for (const [filter, count] of filters) {
      const matcher = eventMatcher(filter)
      const stored = await readAll(cursor, { filter: matcher, first: 2, scan: 3 })
      expect(stored.events, JSON.stringify(filter)).toEqual(events.filter(matcher.matches))
      expect(stored.ids, JSON.stringify(filter)).toHaveLength(count)
    }
  })

  test('by index, however large the log, without statistics and with misleading ones', async () => {
    await database.pool.query('alter table coppice.job_event set (autovacuum_enabled = off)')
    const { cursor } = await reader.present()
    // All of one transaction: to the planner any transaction then looks like most of the log.
    await writeEvents(database.pool, 50_000)
    await writeEvents(database.pool, 1)
    const page = await reader.readBatch(cursor)
    const window = [cursor.from, page.to].map(formatSnapshot)
    const common = [cursor.epoch, 500, 100, ...eventMatcher().parameters]
    const { from } = (await reader.present()).cursor
    const live = [formatSnapshot(from), null, ...common, [...from.xip, from.xmin].map(String)]
    for (const analysed of [false, true]) {
      if (analysed) await database.pool.query('analyze coppice.job_event')
      const first = await explain(readWindow, live)
      // Once for what is above xmax, once for each open transaction; the rows of the page by primary key.
      expect(first.match(/using job_event_feed|Bitmap Index Scan on job_event_feed/g)).toHaveLength(2)
      expect(first).not.toContain('Seq Scan on job_event')
      const later = await explain(readRest, [...window, ...common, page.events.at(-1)!.id])
      expect(later).toContain('Index Scan using job_event_pkey')
      expect(later).not.toContain('Seq Scan on job_event')
    }
  })

  async function explain(query: Statement<PageRow>, parameters: unknown[]): Promise<string> {
    const { rows } = await database.pool.query(`explain ${db.text(query)}`, parameters)
    return rows.map((row) => row['QUERY PLAN']).join('\n')
  }
})

describe('cursors that have expired', () => {
  test('below the floor: refused; at the floor: read', async () => {
    const { cursor } = await reader.present()
    await writeEvents(database.pool, 3)
    const { lastId } = await reader.present()
    const { rows: written } = await database.pool.query('select xid from coppice.job_event where id = $1', [lastId])
    // Transactions in other databases of the server hold xmin back for a while.
    const young = await until(async () => {
      const present = await reader.present()
      return present.cursor.from.xmin > BigInt(written[0].xid) && present.cursor
    })
    const { rows } = await database.pool.query('select floor from coppice.feed_floor')
    try {
      await database.pool.query('update coppice.feed_floor set floor = $1', [String(young.from.xmin)])
      await expect(reader.readBatch(cursor)).rejects.toThrow(CursorExpiredError)
      const inside = { ...cursor, window: { to: young.from, lastId: '1' } }
      await expect(reader.readBatch(inside)).rejects.toThrow(CursorExpiredError)
      expect((await readAll(young)).ids).toEqual([])
      const remaining = await readAll(await reader.oldest())
      expect(remaining.ids).toEqual([])
    } finally {
      await database.pool.query('update coppice.feed_floor set floor = $1', [rows[0].floor])
    }
  })

  test('epoch lost: refused, and a new one is written once, by whoever comes first', async () => {
    const { cursor } = await reader.present()
    await database.pool.query('truncate coppice.feed_epoch')
    const readers = Array.from({ length: 4 }, () => createFeedReader(db))
    const found = await Promise.all(readers.map((one) => one.present()))
    expect(new Set(found.map((one) => one.cursor.epoch)).size).toBe(1)
    expect(found[0]!.cursor.epoch).not.toBe(cursor.epoch)
    await expect(reader.readBatch(cursor)).rejects.toThrow(CursorExpiredError)
    expect(reader.epoch).toBe(found[0]!.cursor.epoch)
    expect((await readAll(found[0]!.cursor)).ids).toEqual([])
  })

  test('the epoch of another cluster or database, as a restored dump brings it along, is none', async () => {
    for (const column of ['system_identifier = system_identifier + 1', 'database_oid = 1']) {
      const { cursor } = await reader.present()
      await database.pool.query(`update coppice.feed_epoch set ${column}`)
      await expect(reader.readBatch(cursor)).rejects.toThrow(CursorExpiredError)
      const { rows } = await database.pool.query('select count(*)::int as count from coppice.feed_epoch')
      expect(rows).toEqual([{ count: 1 }])
    }
  })

  test('a restored dump: events and floor ahead of this database are told once and never again', async () => {
    const before = await reader.present()
    await writeEvents(database.pool, 3)
    const { rows: kept } = await database.pool.query(
      `update coppice.job_event set xid = (pg_current_xact_id()::text::bigint + 5)::text::xid8
       where id > $1 returning id`,
      [before.lastId],
    )
    await database.pool.query(`update coppice.feed_floor set floor = '900000000'`)
    await database.pool.query(`update coppice.feed_epoch set system_identifier = 1`)
    const { cursor } = await reader.present()
    const everything = await readAll(await reader.oldest())
    expect(everything.ids.slice(-3)).toEqual(kept.map((row) => row.id).sort())
    // Let the database reach the numbers that the dump had.
    for (let n = 0; n < 10; n++) await database.pool.query('select pg_current_xact_id()')
    const id = await writeEvent(database.pool)
    expect((await readAll(cursor)).ids).toEqual([id])
    expect((await readAll(everything.cursor)).ids).toEqual([id])
  })

  test('a cursor that is ahead of the database, as after an older copy was put back', async () => {
    const { cursor } = await reader.present()
    const ahead = { ...cursor.from, xmax: cursor.from.xmax + 1_000_000n }
    await expect(reader.readBatch({ ...cursor, from: ahead })).rejects.toThrow(CursorExpiredError)
    await expect(reader.readBatch({ ...cursor, window: { to: ahead, lastId: '0' } })).rejects.toThrow(
      CursorExpiredError,
    )
  })
})
