import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { InvalidCursorError, ValidationError } from '../../src/engine/errors.ts'
import { decodeCursor, encodeCursor } from '../../src/engine/feed/cursor.ts'
import type { FeedBatch, FeedOptions } from '../../src/engine/feed/hub.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { until } from '../support/until.ts'
import { collect, type FeedProcess, nextBatch, startFeed, writeEvent, writeEvents } from './feed-support.ts'

let database: TestDatabase
const processes: FeedProcess[] = []

beforeAll(async () => {
  database = await createTestDatabase()
})

afterEach(async () => {
  vi.restoreAllMocks()
  for (const process of processes.splice(0)) await process.close()
})

afterAll(async () => {
  await database?.drop()
})

/** A feed whose doorbell is deaf: what others write comes with the poll, unless `doorbell.ring()` is called. */
async function feedOf(options: Partial<FeedOptions> = {}): Promise<FeedProcess> {
  const process = await startFeed(database, { pollMs: 60_000, ...options, rings: false })
  processes.push(process)
  return process
}

const idsOf = (batch: FeedBatch) => batch.events.map((event) => event.id)

describe('subscribing', () => {
  test('the first batch comes at once and is empty; what is written from then on arrives', async () => {
    const { feed, doorbell } = await feedOf()
    await writeEvent(database.pool)
    const batches = feed.subscribe()
    expect(await nextBatch(batches)).toEqual({ events: [], cursor: expect.any(String), caughtUp: true, ended: null })
    const id = await writeEvent(database.pool)
    doorbell.ring()
    const batch = await nextBatch(batches)
    expect(batch).toMatchObject({ caughtUp: true, ended: null })
    expect(idsOf(batch)).toEqual([id])
  })

  test('a subscriber begins where it subscribed, not where the process had read to', async () => {
    const { feed, doorbell } = await feedOf()
    const old = feed.subscribe()
    await nextBatch(old)
    const before = await writeEvent(database.pool)
    const young = feed.subscribe()
    await nextBatch(young)
    const after = await writeEvent(database.pool)
    doorbell.ring()
    expect((await collect(young, 1)).ids).toEqual([after])
    expect((await collect(old, 2)).ids).toEqual([before, after])
  })

  test('so also while the process is in the middle of a burst', async () => {
    const { feed, doorbell } = await feedOf()
    const old = feed.subscribe()
    await nextBatch(old)
    await writeEvents(database.pool, 5_000)
    doorbell.ring()
    const burst = await nextBatch(old)
    expect(burst.caughtUp).toBe(false)
    const young = feed.subscribe()
    expect(await nextBatch(young)).toMatchObject({ events: [], caughtUp: true })
    const id = await writeEvent(database.pool)
    doorbell.ring()
    expect((await collect(young, 1)).ids).toEqual([id])
    expect((await collect(old, 5_001 - burst.events.length)).ids.at(-1)).toBe(id)
  })

  test('a ring that is lost is made good by the poll', async () => {
    const { feed } = await feedOf({ pollMs: 150 })
    const batches = feed.subscribe()
    await nextBatch(batches)
    const id = await writeEvent(database.pool)
    expect((await collect(batches, 1)).ids).toEqual([id])
  })

  test('one read serves all: the number of subscribers does not show in the number of statements', async () => {
    const process = await feedOf()
    const subscribers = Array.from({ length: 200 }, () => process.feed.subscribe())
    await Promise.all(subscribers.map(nextBatch))
    const connects = vi.spyOn(process.db.pool, 'connect')
    const ids = [await writeEvent(database.pool), await writeEvent(database.pool)]
    process.doorbell.ring()
    for (const batches of subscribers) expect((await collect(batches, 2)).ids).toEqual(ids)
    expect(connects.mock.calls.length).toBeLessThanOrEqual(2)
  })

  test('nobody subscribed, nothing read', async () => {
    const process = await feedOf({ pollMs: 10 })
    const batches = process.feed.subscribe()
    await nextBatch(batches)
    await batches.return?.()
    // A read may be under way.
    await until(() => process.db.pool.idleCount === process.db.pool.totalCount)
    const connects = vi.spyOn(process.db.pool, 'connect')
    for (let n = 0; n < 10; n++) {
      process.doorbell.ring()
      await sleep(20)
    }
    expect(connects).not.toHaveBeenCalled()
    expect(process.feed.stats()).toMatchObject({ subscribers: 0, lagMs: 0 })
  })

  test('batches are of 100 at most, in order, and say whether there is more', async () => {
    const { feed, doorbell } = await feedOf()
    const batches = feed.subscribe()
    await nextBatch(batches)
    await writeEvents(database.pool, 1_234)
    doorbell.ring()
    const sizes: number[] = []
    const ids: string[] = []
    while (ids.length < 1_234) {
      const batch = await nextBatch(batches)
      sizes.push(batch.events.length)
      ids.push(...idsOf(batch))
      expect(batch.caughtUp).toBe(ids.length === 1_234)
    }
    expect(Math.max(...sizes)).toBe(100)
    expect(sizes.length).toBeLessThanOrEqual(16)
    expect(ids).toEqual([...ids].sort((a, b) => Number(a) - Number(b)))
  })

  test('the first event after a quiet time comes at once, those of a burst after it together', async () => {
    const { feed, doorbell } = await feedOf({ paceMs: 1_000 })
    const batches = feed.subscribe()
    await nextBatch(batches)
    // The quiet time itself: nothing is waited for.
    await sleep(1_000)
    await writeEvent(database.pool)
    doorbell.ring()
    const begun = performance.now()
    expect((await nextBatch(batches)).events).toHaveLength(1)
    const atOnce = performance.now()
    expect(atOnce - begun).toBeLessThan(900)
    for (let n = 0; n < 20; n++) {
      await writeEvent(database.pool)
      doorbell.ring()
    }
    const sizes: number[] = []
    while (sizes.reduce((sum, size) => sum + size, 0) < 20) sizes.push((await nextBatch(batches)).events.length)
    expect(performance.now() - atOnce).toBeGreaterThan(900)
    expect(sizes.length).toBeLessThanOrEqual(2)
  })

  test('a beat when it is quiet, with a young cursor', async () => {
    const { feed } = await feedOf({ beatMs: 100, pollMs: 20 })
    const batches = feed.subscribe()
    const begun = performance.now()
    const first = await nextBatch(batches)
    await database.pool.query('select pg_current_xact_id()')
    const xmax = (batch: FeedBatch) => decodeCursor(batch.cursor).from.xmax
    let beat = first
    for (let beats = 1; xmax(beat) === xmax(first); beats++) {
      beat = await nextBatch(batches)
      expect(beat).toMatchObject({ events: [], caughtUp: true, ended: null })
      expect(performance.now() - begun).toBeGreaterThan(beats * 95)
      expect(beats).toBeLessThan(50)
    }
  })

  test('filters hold for what comes live and for what is caught up', async () => {
    const { feed, doorbell } = await feedOf()
    const treeId = randomUUID()
    const live = feed.subscribe({ filter: { treeId: `JB_${treeId}`, to: ['failed'] } })
    const { cursor } = await nextBatch(live)
    await writeEvents(database.pool, 300)
    await writeEvent(database.pool, { treeId, to: 'queued' })
    const id = await writeEvent(database.pool, { treeId, to: 'failed' })
    await writeEvents(database.pool, 300)
    doorbell.ring()
    expect((await collect(live, 1)).ids).toEqual([id])
    const late = feed.subscribe({ filter: { treeId, to: ['failed'] }, after: cursor })
    expect((await collect(late, 1)).ids).toEqual([id])
    // Where nothing matched, the cursor moves on all the same.
    const next = await writeEvent(database.pool, { treeId, to: 'failed' })
    doorbell.ring()
    const end = await collect(live, 1)
    expect(end.ids).toEqual([next])
    const again = feed.subscribe({ after: end.cursor })
    expect(await nextBatch(again)).toMatchObject({ events: [], caughtUp: true })
  })

  test('a filter that matches nothing: the first batch comes all the same', async () => {
    const { feed } = await feedOf()
    const { cursor } = await feed.read({ first: 1 })
    const batch = await nextBatch(feed.subscribe({ filter: { types: ['nothing'] }, after: cursor }))
    expect(batch).toMatchObject({ events: [], ended: null })
  })

  test('what is wrong with the arguments is said at once', async () => {
    const { feed } = await feedOf()
    expect(() => feed.subscribe({ after: 'nonsense' })).toThrow(InvalidCursorError)
    expect(() => feed.subscribe({ filter: { treeId: 'nonsense' } })).toThrow(ValidationError)
    await expect(feed.read({ first: 101 })).rejects.toThrow(ValidationError)
    await expect(feed.read({ first: 0 })).rejects.toThrow(ValidationError)
    await expect(feed.read({ after: '' })).rejects.toThrow(InvalidCursorError)
    expect(feed.stats().subscribers).toBe(0)
  })
})

describe('resuming', () => {
  test('from any cursor of any batch, in another process: no event twice, none lost', async () => {
    const [one, other] = [await feedOf(), await feedOf()]
    const batches = one.feed.subscribe()
    const start = await nextBatch(batches)
    await writeEvents(database.pool, 950)
    one.doorbell.ring()
    const cursors = [{ cursor: start.cursor, read: 0 }]
    const ids: string[] = []
    while (ids.length < 950) {
      const batch = await nextBatch(batches)
      ids.push(...idsOf(batch))
      cursors.push({ cursor: batch.cursor, read: ids.length })
    }
    for (const { cursor, read } of cursors) {
      const resumed = other.feed.subscribe({ after: cursor })
      const rest = await collect(resumed, 950 - read)
      expect(rest.ids).toEqual(ids.slice(read))
      await resumed.return?.()
    }
  })

  test('a cursor that another process has read further than this one', async () => {
    const [one, other] = [await feedOf(), await feedOf()]
    const here = one.feed.subscribe()
    await nextBatch(here)
    await writeEvents(database.pool, 5)
    // This process has not heard of the five.
    const { cursor } = await nextBatch(other.feed.subscribe())
    const resumed = one.feed.subscribe({ after: cursor })
    expect(await nextBatch(resumed)).toMatchObject({ events: [], caughtUp: true })
    const id = await writeEvent(database.pool)
    one.doorbell.ring()
    expect((await collect(resumed, 1)).ids).toEqual([id])
    expect((await collect(here, 6)).ids.at(-1)).toBe(id)
  })

  test("from a snapshot of a transaction of one's own: exactly what it did not show", async () => {
    const { feed } = await feedOf()
    const open = await database.pool.connect()
    const reading = await database.pool.connect()
    try {
      await open.query('begin')
      const late = await writeEvent(open)
      await reading.query('begin isolation level repeatable read')
      const { rows } = await reading.query('select pg_current_snapshot()::text as snapshot')
      await open.query('commit')
      const after = await writeEvent(database.pool)
      const resumed = feed.subscribe({ after: feed.cursorAt(rows[0].snapshot) })
      expect((await collect(resumed, 2)).ids).toEqual([late, after])
      expect(() => feed.cursorAt('1:0:')).toThrow(InvalidCursorError)
    } finally {
      await reading.query('rollback')
      reading.release()
      open.release()
    }
  })

  test('while new events pour in, it arrives at the present', async () => {
    const { feed, doorbell } = await feedOf()
    const { cursor } = await nextBatch(feed.subscribe())
    await writeEvents(database.pool, 3_000)
    const resumed = feed.subscribe({ after: cursor })
    const ids: string[] = []
    const writing = (async () => {
      for (let n = 0; n < 30; n++) {
        await writeEvents(database.pool, 20)
        doorbell.ring()
      }
    })()
    const reading = (async () => {
      while (ids.length < 3_600) ids.push(...idsOf(await nextBatch(resumed)))
    })()
    await Promise.all([reading, writing])
    expect(new Set(ids).size).toBe(3_600)
    // Live again: one more event comes through the shared frames.
    const connects = vi.spyOn(processes[0]!.db.pool, 'connect')
    const id = await writeEvent(database.pool)
    doorbell.ring()
    expect((await collect(resumed, 1)).ids).toEqual([id])
    expect(connects.mock.calls.length).toBeLessThanOrEqual(1)
  })

  test('expired: told in a last batch, with the cursor that has expired', async () => {
    const { feed } = await feedOf()
    const { cursor } = await nextBatch(feed.subscribe())
    const strange = encodeCursor({ ...decodeCursor(cursor), epoch: randomUUID() })
    const batches = feed.subscribe({ after: strange })
    expect(await nextBatch(batches)).toEqual({ events: [], cursor: strange, caughtUp: false, ended: 'cursor_expired' })
    expect(await batches.next()).toEqual({ done: true, value: undefined })
  })

  test('the epoch is lost while subscribers are live: they are told, and new ones work', async () => {
    const { feed, doorbell } = await feedOf()
    const batches = feed.subscribe()
    const { cursor } = await nextBatch(batches)
    await database.pool.query('truncate coppice.feed_epoch')
    const id = await writeEvent(database.pool)
    doorbell.ring()
    expect(await nextBatch(batches)).toMatchObject({ events: [], ended: 'cursor_expired' })
    expect(await nextBatch(feed.subscribe({ after: cursor }))).toMatchObject({ ended: 'cursor_expired' })
    const { events } = await feed.read({ filter: { kinds: ['moved'] }, first: 100 })
    expect(events.length).toBe(100)
    const young = feed.subscribe()
    await nextBatch(young)
    const next = await writeEvent(database.pool)
    doorbell.ring()
    expect((await collect(young, 1)).ids).toEqual([next])
    expect(next).not.toBe(id)
  })
})

describe('pulling', () => {
  test('the whole log by pages, from the oldest, with a filter that seldom matches', async () => {
    const { feed } = await feedOf()
    const type = `rare-${randomUUID()}`
    const ids: string[] = []
    for (let n = 0; n < 12; n++) {
      ids.push(await writeEvent(database.pool, { type }))
      await writeEvents(database.pool, 700)
    }
    const found: string[] = []
    let after: string | undefined
    let pages = 0
    for (;;) {
      const batch = await feed.read({ filter: { types: [type] }, after, first: 5 })
      expect(batch.ended).toBeNull()
      found.push(...idsOf(batch))
      after = batch.cursor
      pages++
      if (batch.caughtUp) break
    }
    expect(found).toEqual(ids)
    expect(pages).toBeLessThanOrEqual(4)
    expect(await feed.read({ after })).toMatchObject({ events: [], caughtUp: true })
  })
})

describe('leaving', () => {
  test('while parked: return() frees everything at once', async () => {
    const { feed } = await feedOf()
    const batches = feed.subscribe()
    await nextBatch(batches)
    const parked = batches.next()
    expect(feed.stats().subscribers).toBe(1)
    const begun = performance.now()
    await batches.return?.()
    expect(await parked).toEqual({ done: true, value: undefined })
    expect(feed.stats().subscribers).toBe(0)
    expect(performance.now() - begun).toBeLessThan(50)
    expect(await batches.next()).toEqual({ done: true, value: undefined })
  })

  test('by leaving the loop, by throwing, by a signal, before the first batch', async () => {
    const { feed } = await feedOf()
    for await (const batch of feed.subscribe()) {
      expect(batch.events).toEqual([])
      break
    }
    const failing = (async () => {
      for await (const _ of feed.subscribe()) throw new Error('consumer')
    })()
    await expect(failing).rejects.toThrow('consumer')
    const controller = new AbortController()
    const signalled = feed.subscribe({ signal: controller.signal })
    await nextBatch(signalled)
    const parked = signalled.next()
    controller.abort()
    expect(await parked).toEqual({ done: true, value: undefined })
    expect(await feed.subscribe({ signal: controller.signal }).next()).toEqual({ done: true, value: undefined })
    const hasty = feed.subscribe()
    const pending = hasty.next()
    await hasty.return?.()
    expect((await pending).done).toBe(true)
    await expect(feed.subscribe().throw?.(new Error('thrown'))).rejects.toThrow('thrown')
    expect(feed.stats().subscribers).toBe(0)
  })

  test('several next() at once are answered in order', async () => {
    const { feed, doorbell } = await feedOf()
    const batches = feed.subscribe()
    const asked = [batches.next(), batches.next(), batches.next()]
    expect((await asked[0]!).value).toMatchObject({ events: [] })
    const first = await writeEvent(database.pool)
    doorbell.ring()
    expect((await asked[1]!).value?.events.map((event) => event.id)).toEqual([first])
    const second = await writeEvent(database.pool)
    doorbell.ring()
    expect((await asked[2]!).value?.events.map((event) => event.id)).toEqual([second])
  })
})

describe('slow consumers', () => {
  test('one that falls behind the shared frames goes on from the table, without loss', async () => {
    const { feed, doorbell } = await feedOf({ bufferEvents: 500 })
    const [slow, fast] = [feed.subscribe(), feed.subscribe()]
    await nextBatch(slow)
    await nextBatch(fast)
    await writeEvents(database.pool, 2_000)
    doorbell.ring()
    const { ids } = await collect(fast, 2_000)
    expect((await collect(slow, 2_000)).ids).toEqual(ids)
    expect(feed.stats().ringMisses).toBeGreaterThan(0)
    const id = await writeEvent(database.pool)
    doorbell.ring()
    expect((await collect(slow, 1)).ids).toEqual([id])
  })

  test('case 51: one that stops asking is ended with its cursor, and resumes there without loss', async () => {
    const { feed, doorbell } = await feedOf({ maxBehind: 800, bufferEvents: 300 })
    const [stalled, fast] = [feed.subscribe(), feed.subscribe()]
    const { cursor } = await nextBatch(stalled)
    await nextBatch(fast)
    const expected: string[] = []
    for (let n = 0; n < 3; n++) {
      await writeEvents(database.pool, 500)
      doorbell.ring()
      expected.push(...(await collect(fast, 500)).ids)
    }
    expect(feed.stats().subscribers).toBe(1)
    const last = await nextBatch(stalled)
    expect(last).toEqual({ events: [], cursor, caughtUp: false, ended: 'slow_consumer' })
    expect((await stalled.next()).done).toBe(true)
    const resumed = feed.subscribe({ after: last.cursor })
    expect((await collect(resumed, 1_500)).ids).toEqual(expected)
  })

  test('an old cursor is not slowness: who reads on is not ended however much there is', async () => {
    const { feed, doorbell } = await feedOf({ maxBehind: 1_500 })
    const fast = feed.subscribe()
    const { cursor } = await nextBatch(fast)
    await writeEvents(database.pool, 2_000)
    doorbell.ring()
    await collect(fast, 2_000)
    const resumed = feed.subscribe({ after: cursor })
    const ids: string[] = []
    while (ids.length < 3_000) {
      const batch = await nextBatch(resumed)
      expect(batch.ended).toBeNull()
      ids.push(...idsOf(batch))
      if (ids.length <= 2_000) {
        await writeEvents(database.pool, 50)
        doorbell.ring()
      }
    }
    expect(new Set(ids).size).toBe(ids.length)
  })

  test('one that never asks at all is ended too', async () => {
    const { feed, doorbell } = await feedOf({ maxBehind: 200 })
    const { cursor } = await feed.read({ first: 1 })
    const [fresh, resumed, fast] = [feed.subscribe(), feed.subscribe({ after: cursor }), feed.subscribe()]
    await nextBatch(fast)
    for (const count of [300, 1]) {
      await writeEvents(database.pool, count)
      doorbell.ring()
      await collect(fast, count)
    }
    expect(feed.stats().subscribers).toBe(1)
    expect(await nextBatch(fresh)).toMatchObject({ events: [], ended: 'slow_consumer' })
    expect(await nextBatch(resumed)).toMatchObject({ events: [], cursor, ended: 'slow_consumer' })
  })
})

describe('stopping', () => {
  test('everybody gets a last batch: parked, busy, catching up; then the end', async () => {
    const { feed } = await feedOf()
    const [parked, busy] = [feed.subscribe(), feed.subscribe()]
    const { cursor } = await nextBatch(parked)
    await nextBatch(busy)
    const catching = feed.subscribe({ after: cursor })
    const waiting = parked.next()
    await feed.stop()
    expect((await waiting).value).toMatchObject({ events: [], ended: 'shutdown', cursor: expect.any(String) })
    expect(await nextBatch(busy)).toMatchObject({ events: [], ended: 'shutdown' })
    expect(await nextBatch(catching)).toEqual({ events: [], cursor, caughtUp: false, ended: 'shutdown' })
    for (const batches of [parked, busy, catching]) expect((await batches.next()).done).toBe(true)
    expect(feed.stats().subscribers).toBe(0)
  })

  test('the cursor of the last batch goes on where the consumer was, in another process', async () => {
    const [one, other] = [await feedOf(), await feedOf()]
    const batches = one.feed.subscribe()
    await nextBatch(batches)
    await writeEvents(database.pool, 250)
    one.doorbell.ring()
    const { ids } = await collect(batches, 100)
    await one.feed.stop()
    let batch = await nextBatch(batches)
    while (batch.ended === null) {
      ids.push(...idsOf(batch))
      batch = await nextBatch(batches)
    }
    const rest = await collect(other.feed.subscribe({ after: batch.cursor }), 250 - ids.length)
    expect(new Set([...ids, ...rest.ids]).size).toBe(250)
  })

  test('a subscription that comes too late is told so', async () => {
    const { feed } = await feedOf()
    const { cursor } = await feed.read({ first: 1 })
    await feed.stop()
    expect(await nextBatch(feed.subscribe({ after: cursor }))).toMatchObject({ ended: 'shutdown', cursor })
    expect((await feed.subscribe().next()).done).toBe(true)
  })
})
