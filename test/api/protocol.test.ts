import { once } from 'node:events'
import { connect } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../support/until.ts'
import { type Api, startApi } from './api.ts'

// Faults that a library's client would hide, or never make.

let api: Api
beforeAll(async () => {
  api = await startApi()
})
afterAll(() => api.stop())

const EVENTS = 'subscription ($types: [String!]) { jobEvents(filter: { types: $types }) { events { jobId } ended } }'
const JOB = 'subscription ($id: ID!) { job(id: $id, keepOpen: true) { id version } }'

const subscribers = () => api.engine.feed.stats().subscribers

async function enqueue(type: string): Promise<string> {
  const [handle] = await api.engine.enqueueMany([{ type }])
  return handle!.id
}

/** Bytes that wait in the server for clients that do not read. */
function waiting(): number {
  type Handle = { localPort?: number; writableLength?: number }
  const handles = (process as unknown as { _getActiveHandles(): Handle[] })._getActiveHandles()
  const own = handles.filter(({ localPort }) => localPort === api.server.port)
  return own.reduce((sum, { writableLength = 0 }) => sum + writableLength, 0)
}

test('the id of an operation that was completed may be used again at once', async () => {
  const socket = await api.socket()
  for (let round = 0; round < 10; round++) {
    const before = socket.next('1').length
    socket.subscribe('1', EVENTS, { types: ['again'] })
    await until(() => socket.next('1').length > before, { what: 'a first frame' })
    // All in one go: the old one has not wound up when the new one comes, and is completed, and another comes.
    socket.send({ id: '1', type: 'complete' })
    socket.subscribe('1', EVENTS, { types: ['again'] })
    socket.send({ id: '1', type: 'complete' })
    socket.subscribe('1', EVENTS, { types: ['again'] })
    await until(() => socket.next('1').length > before + 1, { what: 'the first frame of the last one' })
    const seen = () => socket.next('1').flatMap(({ data }) => data.jobEvents.events)
    const count = seen().length
    const id = await enqueue('again')
    await until(() => seen().length > count)
    expect(seen().slice(count)).toEqual([{ jobId: `JB_${id}` }])
    socket.send({ id: '1', type: 'complete' })
    await until(() => subscribers() === 0, { timeout: 2000, what: 'all of them freed' })
  }
  socket.subscribe('1', '{ viewer { name } }')
  await socket.frame('1', 'complete')
  expect(socket.closed).toBeUndefined()
  socket.close()
})

test('an id that is in use closes the socket as the protocol says, and frees what it had', async () => {
  const [socket, other] = [await api.socket(), await api.socket()]
  for (const one of [socket, other]) {
    one.subscribe('1', EVENTS)
    await one.frame('1', 'next')
  }
  socket.subscribe('1', EVENTS)
  expect((await until(() => socket.closed)).code).toBe(4409)
  await until(() => subscribers() === 1, { timeout: 2000 })
  expect(other.closed).toBeUndefined()
  other.close()
  await until(() => subscribers() === 0)
})

test('what is no message of the protocol closes the socket, and only that one', async () => {
  const other = await api.socket()
  for (const [frame, code] of [
    ['not json', 4400],
    ['{"type":"nonsense"}', 4400],
    ['{"type":"connection_init"}', 4429],
    ['"x"', 4400],
    ['{"id":"1","type":"next","payload":{}}', 4400],
    ['{"type":"connection_ack"}', 4400],
    ['{"type":"subscribe","id":[{"toString":1}],"payload":{"query":"{ viewer { name } }"}}', 4400],
    ['{"type":"complete","id":{"__proto__":null}}', 4400],
    [JSON.stringify({ type: 'ping', payload: { text: 'x'.repeat(300_000) } }), 1009],
  ] as const) {
    const socket = await api.socket()
    socket.send(frame)
    const closed = await until(() => socket.closed, { what: `close after ${frame.slice(0, 40)}` })
    expect(closed.code).toBe(code)
  }
  other.send({ type: 'ping' })
  await until(() => other.frames.some((frame) => frame.type === 'pong'))
  other.close()
})

test('a subscription whose caller accepts no stream is refused, and leaves nothing behind', async () => {
  for (const accept of ['application/json', 'application/graphql-response+json', 'image/png']) {
    const answer = await fetch(`${api.server.url}/graphql`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept },
      body: JSON.stringify({ query: EVENTS }),
    })
    expect(answer.status, accept).toBe(406)
  }
  await until(() => subscribers() === 0, { timeout: 2000, what: 'nothing left' })
})

test('a client that talks and does not listen makes nothing grow, and holds nobody up', async () => {
  const [frozen, other] = [await api.socket(), await api.socket()]
  frozen.subscribe('1', EVENTS)
  await frozen.frame('1', 'next')
  frozen.webSocket.pause()
  const text = 'x'.repeat(100_000)
  let most = 0
  for (let n = 0; n < 400; n++) {
    frozen.send({ type: 'ping', payload: { text } })
    if (n % 20 === 0) other.send({ type: 'ping', payload: { n } })
    await new Promise(setImmediate)
    most = Math.max(most, waiting())
  }
  await until(() => other.frames.filter(({ type }) => type === 'pong').length === 20)
  // Had it been answered, some 40 MB would wait.
  most = Math.max(most, waiting())
  expect(most).toBeGreaterThan(500_000)
  expect(most).toBeLessThan(4_000_000)
  // It is heard again when it listens.
  frozen.webSocket.resume()
  await until(() => frozen.frames.filter(({ type }) => type === 'pong').length === 400, { timeout: 30_000 })
  for (const socket of [frozen, other]) socket.close()
  await until(() => subscribers() === 0)
  expect(api.log).toEqual([])
})

test('clients that stop reading hold their own stream back, and nothing else', { timeout: 120_000 }, async () => {
  const query = 'subscription { jobEvents(filter: { types: ["bulky"] }) { events { jobId job { payload } } ended } }'
  const [frozen, living] = [await api.socket(), await api.socket()]
  for (const socket of [frozen, living]) {
    socket.subscribe('1', query)
    await socket.frame('1', 'next')
  }
  frozen.webSocket.pause()
  const body = JSON.stringify({ query })
  const stream = connect({ port: api.server.port, host: '127.0.0.1' })
  stream.on('error', () => {})
  stream.write(
    `POST /graphql HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: text/event-stream\r\n` +
      `content-length: ${body.length}\r\n\r\n${body}`,
  )
  await once(stream, 'data')
  stream.pause()

  const ids = new Set<string>()
  const payload = { text: 'x'.repeat(10_000) }
  for (let n = 0; n < 4; n++) {
    const handles = await api.engine.enqueueMany(Array.from({ length: 1000 }, () => ({ type: 'bulky', payload })))
    for (const { id } of handles) ids.add(`JB_${id}`)
  }
  const seen = (socket: typeof living) =>
    socket.next('1').flatMap(({ data }) => data.jobEvents.events.map((event: { jobId: string }) => event.jobId))
  await until(() => seen(living).length === ids.size, { timeout: 60_000, what: 'all events, for who reads' })
  // Of 40 MB for each of the two, a frame or two wait.
  expect(waiting()).toBeLessThan(8_000_000)
  frozen.webSocket.resume()
  await until(() => seen(frozen).length === ids.size, { timeout: 60_000, what: 'all events, for who reads again' })
  expect(seen(frozen)).toEqual(seen(living))
  stream.destroy()
  for (const socket of [frozen, living]) socket.close()
  await until(() => subscribers() === 0, { timeout: 5000 })
  expect(api.log).toEqual([])
})

test('a stream that fails ends with its error as the last frame, and the others go on', async () => {
  const id = await enqueue('failing')
  const socket = await api.socket()
  socket.subscribe('job', JOB, { id })
  await socket.frame('job', 'next')
  socket.subscribe('events', EVENTS, { types: ['failing', 'fine'] })
  await socket.frame('events', 'next')
  const stream = await api.stream(JOB, { id })
  await until(() => stream.next().length > 0)

  await api.test.pool.query('alter table coppice.job rename column queue to kew')
  // What the job's next state is read with fails now; the event itself does not need it.
  await api.test.pool.query(
    `insert into coppice.job_event (kind, job_id, tree_id, type, "from", "to", phase, wave, attempt, version, actor)
     select 'progress', id, tree_id, type, state, state, phase, wave, attempt, version + 1, 'sql' from coppice.job
     where id = $1`,
    [id],
  )
  api.engine.doorbell.ring()
  const error = await socket.frame('job', 'error').finally(async () => {
    await until(() => stream.ended, { what: 'the end of the stream' })
    await api.test.pool.query('alter table coppice.job rename column kew to queue')
  })
  expect(error.payload).toMatchObject([
    { message: 'Internal error.', extensions: { code: 'INTERNAL', errorId: expect.any(String) } },
  ])
  expect(stream.next().at(-1).errors).toMatchObject([{ extensions: { code: 'INTERNAL' } }])
  expect(stream.events.at(-1)!.event).toBe('complete')
  await until(() => subscribers() === 1)

  const fine = await enqueue('fine')
  await until(() => socket.next('events').some(({ data }) => data.jobEvents.events[0]?.jobId === `JB_${fine}`))
  expect(socket.of('job').map(({ type }) => type)).toEqual(['next', 'error'])
  expect(socket.closed).toBeUndefined()
  expect(JSON.stringify([socket.frames, stream.events])).not.toMatch(/kew|does not exist/)
  api.log.length = 0
  socket.close()
})
