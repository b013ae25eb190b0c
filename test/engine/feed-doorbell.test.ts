import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { channelName } from '../../src/engine/feed/channel.ts'
import { createDoorbell, type Doorbell, type DoorbellOptions } from '../../src/engine/feed/doorbell.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { until } from '../support/until.ts'
import { startProxy, type TestProxy } from './feed-proxy.ts'
import { collect, listeningLogger, nextBatch, silent, startFeed, writeEvent } from './feed-support.ts'

let database: TestDatabase
const cleanups: (() => Promise<void>)[] = []

beforeAll(async () => {
  database = await createTestDatabase()
})

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

afterAll(async () => {
  await database?.drop()
})

function bellOf(options: Partial<DoorbellOptions> = {}): Doorbell & { heard: () => number } {
  const { connectionString, schema } = database
  const doorbell = createDoorbell({ connectionString, schema, logger: silent, ...options })
  cleanups.push(() => doorbell.stop())
  let heard = 0
  doorbell.onRing(() => {
    heard++
  })
  return Object.assign(doorbell, { heard: () => heard })
}

async function proxyOf(): Promise<TestProxy> {
  const proxy = await startProxy(database.connectionString)
  cleanups.push(() => proxy.close())
  return proxy
}

/** Ends the connections of doorbells, as an administrator or a failing server would. */
async function terminateDoorbells(): Promise<number> {
  const { rows } = await database.pool.query(
    `select pg_terminate_backend(pid) from pg_stat_activity
     where application_name = 'coppice doorbell' and datname = current_database()`,
  )
  return rows.length
}

async function listeners(): Promise<number> {
  const { rows } = await database.pool.query(
    `select count(*)::int as count from pg_stat_activity
     where application_name = 'coppice doorbell' and datname = current_database()`,
  )
  return rows[0].count
}

describe('ringing', () => {
  test('is heard at once in the process, and soon in others', async () => {
    const [one, other] = [bellOf(), bellOf()]
    await Promise.all([one.start(), other.start()])
    expect([one.listening, other.listening]).toEqual([true, true])
    const before = [one.heard(), other.heard()]
    one.ring()
    expect(one.heard()).toBe(before[0]! + 1)
    await until(() => other.heard() > before[1]!)
    // One's own ring does not come back.
    other.ring()
    await until(() => one.heard() === before[0]! + 2)
    expect(one.heard()).toBe(before[0]! + 2)
  })

  test('a burst becomes few notifications, the last ring is among them, and they carry nothing', async () => {
    const bell = bellOf({ timing: { coalesce: 200 } })
    await bell.start()
    const listener = new pg.Client({ connectionString: database.connectionString })
    const payloads: (string | undefined)[] = []
    listener.on('notification', ({ payload }) => payloads.push(payload))
    await listener.connect()
    cleanups.push(() => listener.end())
    await listener.query(`listen ${channelName(database.schema)}`)
    for (let n = 0; n < 1_000; n++) bell.ring()
    expect(bell.heard()).toBeGreaterThanOrEqual(1_000)
    await until(() => payloads.length === 2)
    bell.ring()
    await until(() => payloads.length === 3)
    expect(payloads).toEqual(['', '', ''])
  })

  test('rings of SQL are heard as well', async () => {
    const bell = bellOf()
    await bell.start()
    const before = bell.heard()
    await database.pool.query(`select pg_notify($1, '')`, [channelName(database.schema)])
    await until(() => bell.heard() > before)
  })

  test('a listener that throws does not keep others from hearing; one that left hears nothing', () => {
    const { logger, lines } = listeningLogger()
    const bell = createDoorbell({ connectionString: 'postgres://nowhere.invalid', schema: 'coppice', logger })
    const heard: string[] = []
    bell.onRing(() => {
      throw new Error('listener')
    })
    const leave = bell.onRing(() => heard.push('first'))
    bell.onRing(() => heard.push('second'))
    bell.ring()
    leave()
    bell.ring()
    expect(heard).toEqual(['first', 'second', 'second'])
    expect(lines.map((line) => line.msg)).toEqual(Array(2).fill('a listener of the doorbell failed'))
  })

  test('the last ring before a stop still goes out', async () => {
    const [one, other] = [bellOf({ timing: { coalesce: 60_000 } }), bellOf()]
    await Promise.all([one.start(), other.start()])
    one.ring()
    await until(() => other.heard() >= 2)
    const before = other.heard()
    one.ring()
    await one.stop()
    await until(() => other.heard() > before)
    one.ring()
    expect(await listeners()).toBe(1)
  })

  test('poll only: rings, but does not listen', async () => {
    const [quiet, other] = [bellOf({ pollOnly: true }), bellOf()]
    await Promise.all([quiet.start(), other.start()])
    expect(quiet.listening).toBe(false)
    const before = other.heard()
    quiet.ring()
    await until(() => other.heard() > before)
    const heard = quiet.heard()
    other.ring()
    const { rows } = await database.pool.query(
      `select count(*)::int as count from pg_stat_activity where query ilike 'listen %' and datname = current_database()`,
    )
    expect(rows[0].count).toBeLessThanOrEqual(1)
    expect(quiet.heard()).toBe(heard)
  })

  test("the channel is the schema's, and fits whatever its length", () => {
    expect(channelName('coppice')).toBe('coppice_coppice')
    const [long, longer] = [`${'ä'.repeat(29)}1`, `${'ä'.repeat(29)}2`].map(channelName)
    expect(Buffer.byteLength(long!)).toBeLessThanOrEqual(63)
    expect(long).not.toBe(longer)
  })
})

describe('losing the connection', () => {
  test('case 46: LISTEN is cut again and again while events happen: all arrive, once, in order', async () => {
    // Only rings and reconnects can bring events in time: the poll is far off.
    const process = await startFeed(database, { pollMs: 60_000, rings: { timing: { backoff: 20, backoffCap: 50 } } })
    cleanups.push(() => process.close())
    const other = bellOf({ timing: { backoff: 20, backoffCap: 50 } })
    await other.start()
    const batches = process.feed.subscribe()
    await nextBatch(batches)
    const written: string[] = []
    const writing = (async () => {
      for (let n = 0; n < 120; n++) {
        written.push(await writeEvent(database.pool, { version: n + 1 }))
        other.ring()
        if (n % 20 !== 10) continue
        // Once everybody is back; the events before the next cut fall into the gap.
        await until(() => process.doorbell.listening && other.listening)
        expect(await terminateDoorbells()).toBe(2)
      }
    })()
    const [{ ids }] = await Promise.all([collect(batches, 120), writing])
    expect(ids).toEqual(written)
    await until(() => process.doorbell.reconnects === 6)
    expect(process.feed.stats().reconnects).toBe(6)
  })

  test('a ring that falls into an outage goes out when it is over', async () => {
    const proxy = await proxyOf()
    const { connectionString } = proxy
    const one = bellOf({ connectionString, timing: { backoff: 20, backoffCap: 50, deadline: 500 } })
    const other = bellOf()
    await Promise.all([one.start(), other.start()])
    proxy.mode = 'swallow'
    await terminateDoorbells()
    await until(() => other.listening && other.reconnects === 1)
    const before = other.heard()
    one.ring()
    await until(() => !one.listening)
    proxy.mode = 'pass'
    await until(() => other.heard() > before)
    await until(() => one.listening)
  })

  test('a socket that is half open is found by the heartbeat, and replaced; listeners are told', async () => {
    const proxy = await proxyOf()
    const { logger, lines } = listeningLogger()
    const timing = { heartbeat: 200, deadline: 300, backoff: 20, backoffCap: 50 }
    const bell = bellOf({ connectionString: proxy.connectionString, logger, timing })
    await bell.start()
    const before = bell.heard()
    proxy.mode = 'swallow'
    const begun = performance.now()
    await until(() => !bell.listening)
    expect(performance.now() - begun).toBeLessThan(5_000)
    expect(lines.some((line) => line.msg.includes('lost its connection'))).toBe(true)
    proxy.mode = 'pass'
    await until(() => bell.listening)
    expect(bell.heard()).toBeGreaterThan(before)
    expect(bell.reconnects).toBe(1)
  })

  test('with the usual times, a half-open socket is found and replaced in less than 15 s', async () => {
    const proxy = await proxyOf()
    const bell = bellOf({ connectionString: proxy.connectionString })
    await bell.start()
    const taken = proxy.connections
    // Existing connections are dead; new ones work, as when a firewall has forgotten them.
    proxy.mode = 'swallow'
    const begun = performance.now()
    await until(() => !bell.listening, { timeout: 15_000 })
    proxy.mode = 'pass'
    await until(() => bell.listening && proxy.connections > taken, { timeout: 15_000 })
    expect(performance.now() - begun).toBeLessThan(15_000)
  })

  test('a session that no longer listens is noticed, and replaced', async () => {
    const proxy = await proxyOf()
    const { connectionString } = proxy
    const bell = bellOf({ connectionString, timing: { heartbeat: 100, backoff: 20 } })
    await bell.start()
    const before = bell.heard()
    proxy.inject('discard all')
    await until(() => bell.reconnects === 1 && bell.listening)
    expect(bell.heard()).toBeGreaterThan(before)
  })

  test('the database is not there at first: start returns, and it listens once it can', async () => {
    const proxy = await proxyOf()
    proxy.mode = 'swallow'
    const { logger, lines } = listeningLogger()
    const timing = { deadline: 200, backoff: 20, backoffCap: 50 }
    const bell = bellOf({ connectionString: proxy.connectionString, logger, timing })
    await bell.start()
    expect(bell.listening).toBe(false)
    await until(() => proxy.connections >= 3)
    proxy.mode = 'pass'
    await until(() => bell.listening)
    expect(bell.reconnects).toBe(0)
    // Once an outage, not once a try.
    expect(lines.filter((line) => line.msg.includes('cannot connect'))).toHaveLength(1)
  })

  test('stop returns while it waits to reconnect, and while nothing answers', async () => {
    const proxy = await proxyOf()
    const bell = bellOf({
      connectionString: proxy.connectionString,
      timing: { deadline: 300, backoff: 60_000, backoffCap: 60_000 },
    })
    await bell.start()
    await terminateDoorbells()
    await until(() => !bell.listening)
    await bell.stop()
    const hung = bellOf({ connectionString: proxy.connectionString, timing: { deadline: 300 } })
    await hung.start()
    proxy.mode = 'swallow'
    hung.ring()
    const begun = performance.now()
    await hung.stop()
    expect(performance.now() - begun).toBeLessThan(5_000)
  })
})

describe('behind a pooler that swallows notifications', () => {
  test('the self-test says so loudly, once; events come by the poll; and it tries again', async () => {
    const proxy = await proxyOf()
    proxy.mode = 'deaf'
    const { logger, lines } = listeningLogger()
    const { connectionString } = proxy
    const timing = { selfTest: 200, retest: 200, backoff: 20 }
    const process = await startFeed(database, { logger, pollMs: 100, rings: { connectionString, timing } })
    cleanups.push(() => process.close())
    expect(process.doorbell.listening).toBe(false)
    const loud = lines.filter((line) => line.level === 50)
    expect(loud).toHaveLength(1)
    expect(loud[0]!.msg).toContain('DIRECT_DATABASE_URL')

    const batches = process.feed.subscribe()
    await nextBatch(batches)
    const id = await writeEvent(database.pool)
    expect((await collect(batches, 1)).ids).toEqual([id])

    const taken = proxy.connections
    await until(() => proxy.connections > taken + 2)
    expect(lines.filter((line) => line.level === 50)).toHaveLength(1)
    proxy.mode = 'pass'
    await until(() => process.doorbell.listening)
    expect(lines.some((line) => line.msg === 'the doorbell hears NOTIFY now')).toBe(true)
  })
})
