import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { removeEmbeddedData } from '../../src/db/embedded/remove.ts'
import { type EmbeddedServer, startEmbeddedServer } from '../../src/db/embedded/server.ts'
import { migrate } from '../../src/db/migrate.ts'
import { until } from '../support/until.ts'
import {
  collect,
  type FeedProcess,
  listeningLogger,
  nextBatch,
  startFeed,
  writeEvent,
  writeEvents,
} from './feed-support.ts'

// A server of its own: these tests bring it down.
let folder: string
let server: EmbeddedServer
let pool: pg.Pool
const processes: FeedProcess[] = []

beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-feed-'))
  server = await startEmbeddedServer({ dataDir: folder })
  await migrate({ connectionString: server.connectionString, schema: 'coppice' })
  pool = new pg.Pool({ connectionString: server.connectionString })
  pool.on('error', () => {})
})

afterEach(async () => {
  for (const process of processes.splice(0)) await process.close()
})

afterAll(async () => {
  await pool?.end()
  await server?.stop()
  await removeEmbeddedData(folder)
  await rm(folder, { recursive: true, force: true })
})

async function processOf() {
  const { logger, lines } = listeningLogger()
  const database = { connectionString: server.connectionString, schema: 'coppice', pool, drop: async () => {} }
  const process = await startFeed(database, { logger, pollMs: 200, rings: { timing: { backoffCap: 200 } } })
  processes.push(process)
  return { ...process, lines }
}

/** Writes as soon as the server takes it. */
async function writeWhenBack(): Promise<string> {
  return await until(() => writeEvent(pool), { timeout: 30_000 })
}

describe('an outage of the database', () => {
  test('restarted in good order: subscribers hold out and lose nothing, live or catching up', async () => {
    const { feed, doorbell, lines } = await processOf()
    const live = feed.subscribe()
    const { cursor } = await nextBatch(live)
    await writeEvents(pool, 300)
    const before = await collect(live, 300)
    await server.restart()
    const id = await writeWhenBack()
    expect((await collect(live, 1)).ids).toEqual([id])
    expect((await collect(feed.subscribe({ after: cursor }), 301)).ids).toEqual([...before.ids, id])
    await until(() => doorbell.listening)
    // Once an outage, not once a try.
    expect(lines.filter((line) => line.msg.startsWith('the event log cannot be read')).length).toBeLessThanOrEqual(1)
  })

  test('subscribed during the outage: begins when the database is back', async () => {
    const { feed } = await processOf()
    const { cursor } = await feed.read({ first: 1 })
    await server.kill()
    const [fresh, resumed] = [feed.subscribe(), feed.subscribe({ after: cursor })]
    const [first, next] = [nextBatch(fresh), nextBatch(resumed)]
    await server.restart()
    expect(await first).toMatchObject({ events: [], ended: null })
    expect(await next).toMatchObject({ events: [], ended: 'cursor_expired', cursor })
    const id = await writeWhenBack()
    expect((await collect(fresh, 1)).ids).toEqual([id])
  })

  test('case 57: after a crash, live subscribers and old cursors are told; a new epoch begins', async () => {
    const { feed } = await processOf()
    const live = feed.subscribe()
    await nextBatch(live)
    // Seen by readers before it is on disk: the crash may take it back, and its transaction id with it.
    const client = new pg.Client({ connectionString: server.connectionString })
    client.on('error', () => {})
    await client.connect()
    await client.query('set synchronous_commit = off')
    await writeEvent(client)
    await collect(live, 1)
    const { cursor } = await nextBatch(feed.subscribe())
    await server.kill()
    await server.restart()
    await client.end().catch(() => {})
    await writeWhenBack()
    expect(await nextBatch(live)).toMatchObject({ events: [], ended: 'cursor_expired' })
    expect(await nextBatch(feed.subscribe({ after: cursor }))).toMatchObject({ ended: 'cursor_expired', cursor })
    await expect(feed.read({ after: cursor })).rejects.toThrow(/read afresh/)
    const young = feed.subscribe()
    await nextBatch(young)
    const id = await writeEvent(pool)
    expect((await collect(young, 1)).ids).toEqual([id])
  })

  test('stop returns while the database is down, and everybody is told', async () => {
    const { feed } = await processOf()
    const live = feed.subscribe()
    await nextBatch(live)
    const parked = live.next()
    await server.kill()
    await feed.stop()
    expect((await parked).value).toMatchObject({ ended: 'shutdown' })
    await server.restart()
  })
})
