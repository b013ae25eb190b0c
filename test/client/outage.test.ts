import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { createClient, createTreeState, sse, type WatchedJob, webSocket } from '../../src/client/index.ts'
import { removeEmbeddedData } from '../../src/db/embedded/remove.ts'
import { type EmbeddedServer, startEmbeddedServer } from '../../src/db/embedded/server.ts'
import { createEngine, type Engine } from '../../src/index.ts'
import { type ApiServer, createServer } from '../../src/server/server.ts'
import { silent } from '../api/api.ts'
import { listeningLogger } from '../engine/feed-support.ts'
import { until } from '../support/until.ts'

// A server of its own: this test brings it down.
let folder: string
let database: EmbeddedServer
let engine: Engine
let server: ApiServer
const { logger, lines } = listeningLogger()

beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-outage-'))
  database = await startEmbeddedServer({ dataDir: folder })
  engine = createEngine({ connectionString: database.connectionString, worker: false, logger })
  await engine.start()
  server = await createServer({ engine, config: { host: '127.0.0.1', port: 0 }, logger: silent() })
})

afterAll(async () => {
  await server?.stop()
  await engine?.stop({ grace: 0 })
  await database?.stop()
  await removeEmbeddedData(folder)
  await rm(folder, { recursive: true, force: true })
})

const transports = ['SSE', 'WebSocket'] as const

function clientOver(name: (typeof transports)[number], onRetry: (reason: Error) => void) {
  const url = `${server.url}/graphql`
  const transport =
    name === 'SSE' ? sse({ url }) : webSocket({ url: url.replace('http', 'ws'), webSocketImpl: WebSocket })
  return createClient({ transport, onRetry })
}

test('PostgreSQL is restarted under subscriptions: they hold out, are told all, and no client notices', {
  timeout: 120_000,
}, async () => {
  const leaving = new AbortController()
  const { signal } = leaving
  const breaks: string[] = []
  const root = await engine.enqueue({ type: 'root', children: [{ type: 'leaf' }] })
  const watched = transports.map((name) => {
    const client = clientOver(name, (reason) => breaks.push(`${name}: ${reason.message}`))
    const told: string[] = []
    const tree = createTreeState<WatchedJob>()
    const seen = { told, tree, frames: 0, failures: [] as unknown[] }
    async function events() {
      for await (const frame of client.watchEvents({ filter: { types: ['leaf'] }, signal })) {
        seen.frames++
        if (frame.type === 'gap') seen.failures.push('gap')
        else told.push(...frame.events.map((event) => event.jobId))
      }
    }
    async function updates() {
      for await (const update of client.watchTree(root.id, { signal })) tree.apply(update)
    }
    for (const run of [events, updates]) run().catch((error: unknown) => seen.failures.push(error))
    return seen
  })
  await until(() => watched.every(({ frames, tree }) => frames > 0 && tree.caughtUp))

  const ids: string[] = []
  const spawn = async () => {
    const { children } = await engine.spawnChildren(root.id, [{ type: 'leaf' }, { type: 'leaf' }])
    ids.push(...children.map(({ id }) => `JB_${id}`))
  }
  await spawn()
  for (let outage = 0; outage < 2; outage++) {
    const { port } = database
    lines.length = 0
    await database.stop()
    // Long enough for a read of the log to fail.
    await until(() => lines.some(({ msg }) => msg.startsWith('the event log cannot be read')))
    database = await startEmbeddedServer({ dataDir: folder, port })
    // Refused while nobody is there: then nothing was written.
    await until(
      async () => {
        await spawn()
        return true
      },
      { timeout: 30_000 },
    )
    // The log is read again, and a second outage is news.
    await until(() => watched.every(({ told }) => told.length >= ids.length), { timeout: 30_000, what: 'all events' })
  }
  await until(() =>
    watched.every(({ tree }) => tree.counts?.total === ids.length + 2 && tree.jobs.size === ids.length + 2),
  )
  for (const { told, failures } of watched) {
    expect([...told].sort()).toEqual([...ids].sort())
    expect(failures).toEqual([])
  }
  expect(breaks).toEqual([])
  leaving.abort()
  await until(() => engine.feed.stats().subscribers === 0)
})
