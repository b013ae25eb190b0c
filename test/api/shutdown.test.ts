import { connect } from 'node:net'
import { createClient } from 'graphql-ws'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { createServer } from '../../src/server/server.ts'
import { until } from '../support/until.ts'
import { type Api, silent, startApi } from './api.ts'

let api: Api
beforeEach(async () => {
  api = await startApi()
})
afterEach(() => api.stop())

const EVENTS = 'subscription ($after: String) { jobEvents(after: $after) { events { jobId } cursor ended } }'
/** Bytes that wait in this process for clients that do not read. */
function buffered(): number {
  const handles = (process as unknown as { _getActiveHandles(): { writableLength?: number }[] })._getActiveHandles()
  return handles.reduce((sum, handle) => sum + (handle.writableLength ?? 0), 0)
}

const JOB = 'subscription ($id: ID!) { job(id: $id) { state } }'

test('every subscription gets its last frame; WebSockets close with 1012 and without Complete', async () => {
  const [handle] = await api.engine.enqueueMany([{ type: 'a' }])
  const socket = await api.socket()
  socket.subscribe('events', EVENTS)
  socket.subscribe('job', JOB, { id: handle!.id })
  await socket.frame('events', 'next')
  await socket.frame('job', 'next')
  const idle = await api.socket()
  const stream = await api.stream(EVENTS)
  await until(() => stream.next().length > 0)

  const started = performance.now()
  await api.server.stop()
  expect(performance.now() - started).toBeLessThan(2000)
  expect(socket.closed).toEqual({ code: 1012, reason: 'Service restart' })
  expect(idle.closed?.code).toBe(1012)
  const last = socket.next('events').at(-1).data.jobEvents
  expect(last).toEqual({ events: [], cursor: expect.any(String), ended: 'SHUTDOWN' })
  expect(socket.frames.filter((frame) => frame.type === 'complete')).toEqual([])
  await until(() => stream.ended)
  expect(stream.next().at(-1).data.jobEvents).toMatchObject({ ended: 'SHUTDOWN' })
  expect(api.engine.feed.stats().subscribers).toBe(0)

  // What happened meanwhile comes behind the cursor of the last frame, from another server.
  const [missed] = await api.engine.enqueueMany([{ type: 'b' }])
  const other = await createServer({ engine: api.engine, config: { host: '127.0.0.1', port: 0 }, logger: silent() })
  const answer = await fetch(`${other.url}/graphql`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      query: 'query ($after: String) { events(after: $after) { events { jobId } } }',
      variables: { after: last.cursor },
    }),
  })
  expect(await answer.json()).toEqual({ data: { events: { events: [{ jobId: `JB_${missed!.id}` }] } } })
  await other.stop()
})

test('a graphql-ws client comes back to the next server by itself', async () => {
  const { port } = api.server
  const frames: string[] = []
  const client = createClient({
    url: `ws://127.0.0.1:${port}/graphql`,
    webSocketImpl: WebSocket,
    retryAttempts: 100,
    retryWait: () => new Promise((resolve) => setTimeout(resolve, 50)),
    shouldRetry: () => true,
  })
  let completed = false
  client.subscribe<{ jobEvents: { events: { jobId: string }[] } }>(
    { query: EVENTS },
    {
      next: (frame) => frames.push(...frame.data!.jobEvents.events.map((event) => event.jobId), 'frame'),
      error: (error) => frames.push(`error ${error}`),
      complete: () => {
        completed = true
      },
    },
  )
  await until(() => frames.length === 1, { what: 'the first frame' })
  await api.server.stop()
  const next = await createServer({ engine: api.engine, config: { host: '127.0.0.1', port }, logger: silent() })
  await until(() => frames.length >= 3, { what: 'a last frame, and a first one of the next server' })
  const [handle] = await api.engine.enqueueMany([{ type: 'a' }])
  await until(() => frames.includes(`JB_${handle!.id}`))
  expect(completed).toBe(false)
  await client.dispose()
  await next.stop()
})

test('a client that is frozen, and one that never asked for anything, do not hold the end up', async () => {
  const frozen = await api.socket()
  frozen.subscribe('1', 'subscription { jobEvents { events { job { payload } } } }')
  await frozen.frame('1', 'next')
  frozen.webSocket.pause()
  // Far more than fits in the buffers between the two: its operation hangs in the middle of a frame.
  const payload = { text: 'x'.repeat(500_000) }
  await api.engine.enqueueMany(Array.from({ length: 60 }, () => ({ type: 'big', payload })))
  await until(() => buffered() > 1_000_000, { what: 'a frame that does not fit' })
  const silentClient = connect({ port: api.server.port, host: '127.0.0.1' })
  silentClient.on('error', () => {})
  await new Promise((resolve) => silentClient.once('connect', resolve))
  const halfClient = connect({ port: api.server.port, host: '127.0.0.1' })
  halfClient.on('error', () => {})
  halfClient.write(
    'POST /graphql HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{',
  )
  await until(async () => (await api.ask('{ viewer { name } }')).viewer.name)

  const started = performance.now()
  await api.server.stop()
  expect(performance.now() - started).toBeLessThan(7000)
  expect(api.engine.feed.stats().subscribers).toBe(0)
  silentClient.destroy()
  halfClient.destroy()
})

test('while it stops the server is not ready, and takes nothing new', async () => {
  const url = api.server.url
  const frozen = await api.socket()
  frozen.subscribe('1', EVENTS)
  await frozen.frame('1', 'next')
  frozen.webSocket.pause()
  // A connection that is kept alive by requests, so that it can still ask.
  const kept = connect({ port: api.server.port, host: '127.0.0.1' })
  kept.on('error', () => {})
  let text = ''
  kept.on('data', (data) => {
    text += data
  })
  kept.write('GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n')
  await until(() => text.includes('"ready":true') && text.includes('"status":"ok"'))
  text = ''
  kept.write('GET /readyz HTTP/1.1\r\nhost: localhost\r\n')
  await until(() => api.ask('{ viewer { name } }'))
  const stopping = api.server.stop()
  kept.write('\r\n')
  await until(() => text.includes('HTTP/1.1 503') && text.includes('"stopping":true'))
  await expect(fetch(`${url}/healthz`)).rejects.toThrow()
  kept.destroy()
  frozen.close()
  await stopping
})
