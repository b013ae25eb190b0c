import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import {
  createClient,
  createTreeState,
  type EventFrame,
  RequestError,
  sse,
  type Transport,
  type WatchedEvent,
  type WatchedJob,
  webSocket,
} from '../../src/client/index.ts'
import { expireCursors } from '../support/expire-cursors.ts'
import { until } from '../support/until.ts'
import { type CuttableApi, startCuttableApi } from './cuttable-api.ts'

let api: CuttableApi
beforeAll(async () => {
  api = await startCuttableApi()
})
afterAll(() => api.close())

const BACKOFF = { first: 20, most: 200 }
const transports: [string, () => Transport][] = [
  ['SSE', () => sse({ url: api.url })],
  ['WebSocket', () => webSocket({ url: api.url.replace('http', 'ws'), webSocketImpl: WebSocket })],
]

const subscribers = () => api.serving().feed.stats().subscribers

/** All that a loop gets, and how it ends. */
function collect<T>(from: AsyncIterable<T>) {
  const collected = { frames: [] as T[], over: false, error: undefined as unknown }
  const run = async () => {
    for await (const frame of from) collected.frames.push(frame)
  }
  run().then(
    () => {
      collected.over = true
    },
    (error: unknown) => {
      collected.error = error
    },
  )
  return collected
}

const eventsOf = (frames: EventFrame<WatchedEvent>[]) =>
  frames.flatMap((frame) => (frame.type === 'events' ? frame.events : []))

async function loggedEvents(where: string, parameters: unknown[]): Promise<{ id: string; jobId: string }[]> {
  const { rows } = await api.test.pool.query(
    `select 'EV_' || id as id, 'JB_' || job_id as "jobId" from coppice.job_event e where ${where} order by e.id`,
    parameters,
  )
  return rows
}

describe.each(transports)('over %s', (name, connect) => {
  test('nothing is lost and nothing comes twice while connections are cut and the server restarts', {
    timeout: 120_000,
  }, async () => {
    const retries: string[] = []
    const client = createClient({
      transport: connect(),
      backoff: BACKOFF,
      onRetry: (reason) => retries.push(reason.message),
    })
    const type = `churn-${name}`
    const { id: treeId } = await api.writer.enqueue({ type, children: Array.from({ length: 6 }, () => ({ type })) })
    const leaving = new AbortController()
    const events = collect(client.watchEvents({ filter: { types: [type] }, signal: leaving.signal }))
    const tree = createTreeState<WatchedJob>()
    const copies: { id: string; version: number }[] = []
    let resets = 0
    const updates = client.watchTree(treeId, { signal: leaving.signal })
    const treeOver = (async () => {
      for await (const update of updates) {
        if (update.reset) resets++
        copies.push(...update.jobs)
        tree.apply(update)
      }
    })()
    await until(() => events.frames.length > 0 && tree.caughtUp)
    const since = (await loggedEvents('true', [])).length

    let writing = true
    const writer = (async () => {
      for (let n = 0; writing; n++) {
        const { children } = await api.writer.spawnChildren(treeId, [{ type }, { type }])
        await api.writer.cancelJob(children[0]!.id)
        if (n % 3 === 0) await api.writer.deleteJob(children[1]!.id)
        await new Promise((resolve) => setTimeout(resolve, 10))
      }
    })()
    for (let round = 0; round < 3; round++) {
      const before = events.frames.length
      api.cut()
      await until(() => events.frames.length > before + 3, { what: 'events after a cut' })
      await api.down()
      await api.up()
      await until(() => events.frames.length > before + 10, { what: 'events after a restart', timeout: 30_000 })
    }
    writing = false
    await writer

    const logged = await loggedEvents('type = $1', [type])
    const expected = (await loggedEvents('true', []))
      .slice(since)
      .filter((event) => logged.some(({ id }) => id === event.id))
    await until(() => eventsOf(events.frames).length >= expected.length, { what: 'all events' })
    const told = eventsOf(events.frames)
    expect(new Set(told.map((event) => event.id)).size).toBe(told.length)
    expect(told.map((event) => event.id).sort()).toEqual(expected.map((event) => event.id).sort())
    const versions = new Map<string, number>()
    for (const { jobId, version } of told) {
      expect(version).toBeGreaterThan(versions.get(jobId) ?? 0)
      versions.set(jobId, version)
    }
    expect(events.frames.some((frame) => frame.type === 'gap')).toBe(false)

    const { rows } = await api.test.pool.query(
      `select 'JB_' || id as id, version, upper(state) as state, open_children from coppice.job where tree_id = $1 order by id`,
      [treeId],
    )
    await until(
      () =>
        tree.caughtUp &&
        tree.jobs.size === rows.length &&
        rows.every((row) => tree.jobs.get(row.id)?.version === row.version),
    )
    expect(tree.jobs.get(`JB_${treeId}`)!.openChildren).toBe(
      rows.find((row) => row.id === `JB_${treeId}`)!.open_children,
    )
    await until(() => tree.counts!.total === rows.length)
    expect(resets).toBe(1)
    // A copy may be ahead of the cursor, and come again after a break; an older one never comes.
    const newest = new Map<string, number>()
    for (const { id, version } of copies) {
      expect(version, id).toBeGreaterThanOrEqual(newest.get(id) ?? 0)
      newest.set(id, version)
    }
    expect(retries.length).toBeGreaterThanOrEqual(6)

    leaving.abort()
    await treeOver
    await until(() => events.over && subscribers() === 0)
    expect(events.error).toBeUndefined()
  })

  test('a job is watched to its end, across a restart; one that has ended already is told and over (case 49)', async () => {
    const client = createClient({ transport: connect(), backoff: BACKOFF })
    const { id } = await api.writer.enqueue({ type: 'single' })
    const watched = collect(client.watchJob(id))
    const kept = new AbortController()
    const open = collect(client.watchJob(id, { keepOpen: true, signal: kept.signal }))
    await until(() => watched.frames.length === 1 && open.frames.length === 1)
    await api.down()
    await api.up()
    await until(() => subscribers() === 2, { timeout: 30_000 })
    expect(watched.over).toBe(false)
    await api.writer.cancelJob(id)
    await until(() => watched.over)
    expect(watched.frames.map((job) => [job!.state, job!.version])).toEqual([
      ['QUEUED', 1],
      ['CANCELLED', 2],
    ])
    const again = collect(client.watchJob(`JB_${id}`))
    await until(() => again.over)
    expect(again.frames.map((job) => job!.state)).toEqual(['CANCELLED'])
    const never = collect(client.watchJob('01890000-0000-7000-8000-00000000ffff'))
    await until(() => never.over)
    expect(never.frames).toEqual([null])
    // Both states, the end too, and then nothing more.
    await until(() => open.frames.length === 2)
    expect(open.over).toBe(false)
    kept.abort()
    await until(() => open.over)
    await until(() => subscribers() === 0)
  })

  test('a gap is told, and the stream goes on after it; a tree begins anew', async () => {
    const client = createClient({ transport: connect(), backoff: BACKOFF })
    const { id } = await api.writer.enqueue({ type: 'gapped' })
    const first = client.watchTree(id)
    const { cursor } = (await first.next()).value!
    await first.return!()
    await expireCursors(api.test.pool)
    const leaving = new AbortController()
    const { signal } = leaving
    const events = collect(client.watchEvents({ after: cursor, filter: { types: ['gapped'] }, signal }))
    await until(() => events.frames.length >= 2)
    expect(events.frames.map((frame) => frame.type).slice(0, 2)).toEqual(['gap', 'events'])
    const tree = collect(client.watchTree(id, { after: cursor, signal }))
    await until(() => tree.frames.length >= 1)
    expect(tree.frames[0]).toMatchObject({ reset: true, jobs: [{ id: `JB_${id}` }], caughtUp: true })
    await api.writer.cancelJob(id)
    await until(() => eventsOf(events.frames).length === 1 && tree.frames.at(-1)!.jobs[0]?.state === 'CANCELLED')
    leaving.abort()
    await until(() => events.over && tree.over)
  })

  test('what makes no sense is thrown, and not tried again', async () => {
    const retries: Error[] = []
    const client = createClient({ transport: connect(), backoff: BACKOFF, onRetry: (reason) => retries.push(reason) })
    await expect(client.watchEvents({ after: 'garbage' }).next()).rejects.toMatchObject({ code: 'BAD_REQUEST' })
    await expect(client.watchTree('garbage').next()).rejects.toThrow(RequestError)
    await expect(client.watchTree('01890000-0000-7000-8000-00000000ffff').next()).rejects.toThrow('There is no job')
    await expect(client.watchJob('garbage', { fields: 'nonsense' }).next()).rejects.toThrow(/nonsense/)
    await expect(client.subscribe({ query: 'subscription {' }).next()).rejects.toThrow(RequestError)
    expect(retries).toEqual([])
  })

  test('any subscription goes on from its cursor if it has one; others begin anew', async () => {
    const client = createClient({ transport: connect(), backoff: BACKOFF })
    const leaving = new AbortController()
    const query =
      'subscription ($after: String) { feed: jobEvents(filter: { types: ["any"] }, after: $after) { events { id } cursor ended } }'
    type Data = { feed: { events: { id: string }[] } }
    const own = collect(client.subscribe<Data>({ query }, { signal: leaving.signal }))
    const stats = client.subscribe<{ stats: { jobs: { total: number } } }>({
      query: 'subscription { stats(interval: 500) { jobs { total } } }',
    })
    expect((await stats.next()).value!.stats.jobs.total).toBeGreaterThan(0)
    await stats.return!()
    await until(() => own.frames.length > 0)
    api.cut()
    for (let n = 0; n < 5; n++) await api.writer.enqueue({ type: 'any' })
    const ids = () => own.frames.flatMap(({ feed }) => feed.events.map((event) => event.id))
    await until(() => ids().length >= 5)
    expect(ids()).toEqual((await loggedEvents(`type = 'any'`, [])).map((event) => event.id).slice(-5))
    leaving.abort()
    await until(() => own.over)
  })

  test('leaving frees everything at once, also while it is trying to come back', async () => {
    const client = createClient({ transport: connect(), backoff: { first: 60_000, most: 60_000 } })
    const leaving = new AbortController()
    const watched = collect(client.watchEvents({ signal: leaving.signal }))
    await until(() => watched.frames.length > 0)
    for await (const _ of client.watchEvents()) break
    await until(() => subscribers() === 1)
    api.cut()
    await until(() => subscribers() === 0)
    const left = performance.now()
    leaving.abort()
    await until(() => watched.over)
    expect(performance.now() - left).toBeLessThan(1000)
    const { connections } = api
    const aborted = collect(client.watchEvents({ signal: leaving.signal }))
    await until(() => aborted.over)
    expect(api.connections).toBe(connections)
  })
})
