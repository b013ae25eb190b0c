import { connect } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createServer, type ServerOptions } from '../../src/server/server.ts'
import { until } from '../support/until.ts'
import { type Api, silent, startApi } from './api.ts'
import { RawSocket } from './raw-socket.ts'
import { SseStream } from './sse-stream.ts'

let api: Api
beforeAll(async () => {
  api = await startApi()
})
afterAll(() => api.stop())

const WHO = '{ viewer { name } }'
const EVENTS = 'subscription { jobEvents { events { jobId } cursor } }'
const EXCEEDED = [{ extensions: { code: 'LIMIT_EXCEEDED' } }]

/** A second server, with limits of its own. */
async function withLimits(
  limits: NonNullable<ServerOptions['limits']>,
  use: (url: string) => Promise<void>,
  more: Partial<ServerOptions> = {},
): Promise<void> {
  const config = { host: '127.0.0.1', port: 0 }
  const server = await createServer({ engine: api.engine, config, logger: silent(), limits, ...more })
  try {
    await use(`${server.url}/graphql`)
  } finally {
    await server.stop()
  }
}

function post(url: string, query: string, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ query }),
  })
}

async function open(url: string): Promise<RawSocket> {
  const socket = await RawSocket.open(url.replace('http:', 'ws:'))
  await socket.init()
  return socket
}

async function refused(reason: string): Promise<number> {
  const metrics = await (await fetch(`${api.server.url}/metrics`)).text()
  return Number(new RegExp(`refused_total\\{reason="${reason}"\\} (\\d+)`).exec(metrics)?.[1] ?? 0)
}

/** `{ job { parent { parent … } } }`. */
function deep(levels: number, root = 'job(id: "x")'): string {
  return `{ ${root} ${'{ parent '.repeat(levels)} { id } ${'}'.repeat(levels)} }`
}

test('what costs too much, lies too deep or has too many aliases is refused on every transport', async () => {
  const pages = 'children(first: 100) { nodes { children(first: 100) { nodes { id } } } }'
  const aliases = Array.from({ length: 101 }, (_, n) => `a${n}: viewer { name }`).join(' ')
  const cases: [string, string][] = [
    ['cost', `{ jobs(first: 100) { nodes { ${pages} } } }`],
    ['cost', `query ($n: Int = 100) { jobs(first: $n) { nodes { ${pages.replaceAll('100', '$n')} } } }`],
    ['cost', `query A { viewer { name } } query B { jobs(last: 100) { nodes { ${pages} } } }`],
    ['cost', `{ jobs { nodes { ...F } } } fragment F on Job { ${pages} }`],
    [
      'cost',
      `{ ${Array.from({ length: 10 }, (_, n) => `a${n}: jobTree(id: "x") { nodes(first: 10000) { nodes { id } } }`).join(' ')} }`,
    ],
    ['cost', `subscription { jobEvents { events { job { ${pages} } } } }`],
    ['cost', 'subscription { jobTree(id: "x") { jobs { children(first: 100) { nodes { id } } } } }'],
    [
      'cost',
      `mutation { cancelJob(input: { id: "x" }) { ... on CancelJobSuccess { job { children(first: 100) { nodes { ${pages} } } } } } }`,
    ],
    ['depth', deep(30)],
    ['depth', `subscription { job(id: "x") ${'{ parent '.repeat(30)} { id } ${'}'.repeat(30)} }`],
    ['aliases', `{ ${aliases} }`],
    ['aliases', `query A { viewer { name } } query B { ...F } fragment F on Query { ${aliases} }`],
  ]
  const socket = await api.socket()
  const url = `${api.server.url}/graphql`
  socket.subscribe('alive', EVENTS)
  await socket.frame('alive', 'next')
  for (const [index, [reason, query]] of cases.entries()) {
    const before = await refused(reason)
    const operationName = query.includes('query B') ? 'B' : undefined
    const answer = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(query.startsWith('sub') && { accept: 'text/event-stream' }) },
      body: JSON.stringify({ query, operationName }),
    })
    const text = await answer.text()
    expect(text, query).toContain('LIMIT_EXCEEDED')
    expect(answer.status, query).toBe(400)
    socket.send({ id: `${index}`, type: 'subscribe', payload: { query, operationName } })
    const frame = await until(() => socket.of(`${index}`)[0], { what: query })
    expect(frame.payload.errors ?? frame.payload, query).toMatchObject(EXCEEDED)
    const stream = await SseStream.open(url, query.replace('query A { viewer { name } }', ''))
    await until(() => stream.ended)
    expect(stream.next()[0].errors, query).toMatchObject(EXCEEDED)
    expect(await refused(reason)).toBeGreaterThanOrEqual(before + 3)
  }
  const id = (await api.engine.enqueueMany([{ type: 'alive' }]))[0]!.id
  await until(() => socket.next('alive').some((f) => f.data.jobEvents.events[0]?.jobId === `JB_${id}`))
  expect(socket.closed).toBeUndefined()
  socket.close()
})

test('what people ask for is well within the limits', async () => {
  const job = 'id type state phase progress { current total message } childCounts { total open completed failed }'
  for (const query of [
    `{ jobs(first: 100) { nodes { ${job} children(first: 20) { nodes { ${job} } } } } }`,
    `{ jobTree(id: "JB_01890000-0000-7000-8000-000000000000") { nodes(first: 10000) { nodes { ${job} parentId depth error errorCode createdAt startedAt finishedAt } } } }`,
    '{ jobs(first: 100) { nodes { id explain { reason sentence jobs { id } } attempts { number error } receipt { wave } } } }',
    deep(15, 'job(id: "JB_01890000-0000-7000-8000-000000000000")'),
  ]) {
    expect((await api.run(query)).errors, query).toBeUndefined()
  }
})

test('the limits are settable', async () => {
  await withLimits(
    { maxCost: 100, maxDepth: 5, maxAliases: 1, maxTokens: 1000, maxRequestBytes: 2000 },
    async (url) => {
      for (const query of [
        '{ jobs(first: 100) { nodes { id } } }',
        deep(5),
        '{ a: viewer { name } b: viewer { name } }',
        `{ ${'viewer { name } '.repeat(250)} }`,
        `{ viewer { name } } # ${'x'.repeat(2000)}`,
      ]) {
        expect(await (await post(url, query)).json(), query.slice(0, 50)).toMatchObject({ errors: EXCEEDED })
      }
      expect((await post(url, '{ a: viewer { name } }')).status).toBe(200)
      const socket = await open(url)
      socket.subscribe('1', `{ viewer { name } } # ${'x'.repeat(2000)}`)
      expect((await until(() => socket.closed)).code).toBe(1009)
    },
  )
})

/** Holds the row of a job, so that whatever changes it has to wait. */
async function holding(id: string, use: () => Promise<void>): Promise<void> {
  const client = await api.test.pool.connect()
  try {
    await client.query('begin')
    await client.query('select from coppice.job where id = $1 for update', [id])
    await use()
  } finally {
    await client.query('rollback')
    client.release()
  }
}

const CANCEL = (id: string) => `mutation { cancelJob(input: { id: "${id}" }) { __typename } }`

test('an operation that takes too long is ended, over HTTP and on a socket, whose others go on', async () => {
  const [handle] = await api.engine.enqueueMany([{ type: 'held' }])
  await withLimits({ requestTimeoutMs: 300 }, async (url) => {
    await holding(handle!.id, async () => {
      const socket = await open(url)
      socket.subscribe('events', EVENTS)
      const started = performance.now()
      socket.subscribe('slow', CANCEL(handle!.id))
      const answer = await post(url, CANCEL(handle!.id))
      expect(answer.status).toBe(503)
      expect(await answer.json()).toMatchObject({ errors: EXCEEDED })
      await socket.frame('slow', 'complete')
      expect(performance.now() - started).toBeLessThan(3000)
      expect(socket.next('slow')[0].errors).toMatchObject(EXCEEDED)
      // A subscription is not ended by it.
      await api.engine.enqueueMany([{ type: 'later' }])
      await until(() => socket.next('events').some((frame) => frame.data.jobEvents.events.length > 0))
      expect(socket.of('events').every((frame) => frame.type === 'next')).toBe(true)
      socket.close()
    })
  })
})

test('one connection has so many operations and subscriptions under way, and its others go on', async () => {
  const [handle] = await api.engine.enqueueMany([{ type: 'held' }])
  await withLimits({ maxOperations: 2, maxSubscriptions: 3 }, async (url) => {
    const socket = await open(url)
    for (let n = 0; n < 3; n++) socket.subscribe(`s${n}`, EVENTS)
    for (let n = 0; n < 3; n++) await socket.frame(`s${n}`, 'next')
    socket.subscribe('s3', EVENTS)
    expect((await socket.frame('s3', 'error')).payload).toMatchObject(EXCEEDED)
    await holding(handle!.id, async () => {
      for (let n = 0; n < 2; n++) socket.subscribe(`m${n}`, CANCEL(handle!.id))
      socket.subscribe('m2', WHO)
      expect((await socket.frame('m2', 'error')).payload).toMatchObject(EXCEEDED)
      // A flood is answered without being read.
      for (let n = 0; n < 50; n++) socket.subscribe(`f${n}`, WHO)
      for (let n = 0; n < 50; n++) expect((await socket.frame(`f${n}`, 'error')).payload).toMatchObject(EXCEEDED)
    })
    for (let n = 0; n < 2; n++) await socket.frame(`m${n}`, 'complete')
    socket.send({ id: 's0', type: 'complete' })
    await until(() => api.engine.feed.stats().subscribers === 2)
    socket.subscribe('again', EVENTS)
    await socket.frame('again', 'next')
    socket.subscribe('query', WHO)
    await socket.frame('query', 'complete')
    expect(socket.closed).toBeUndefined()
    socket.close()
  })
  expect(await refused('subscriptions')).toBe(1)
})

test('requests that are sent one behind the other on one connection count too', async () => {
  const before = await refused('operations')
  const [handle] = await api.engine.enqueueMany([{ type: 'held' }])
  await withLimits({ maxOperations: 2 }, async (url) => {
    const client = connect({ port: Number(new URL(url).port), host: '127.0.0.1' })
    let text = ''
    client.on('data', (data) => {
      text += data
    })
    const body = JSON.stringify({ query: CANCEL(handle!.id) })
    const request = `POST /graphql HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`
    await holding(handle!.id, async () => {
      client.write(request.repeat(3))
      await until(async () => (await refused('operations')) > before)
    })
    await until(() => text.includes('429 Too Many Requests'))
    expect(text.match(/HTTP\/1.1 200/g)).toHaveLength(2)
    client.destroy()
  })
})

test('a process has so many connections; more are closed as they come, and counted', async () => {
  await withLimits({ maxConnections: 2 }, async (url) => {
    const sockets = [await open(url), await open(url)]
    await expect(RawSocket.open(url.replace('http:', 'ws:'))).rejects.toThrow()
    await until(async () => (await refused('connections')) === 1)
    sockets[0]!.close()
    const third = await until(() => open(url).catch(() => undefined))
    third.close()
    sockets[1]!.close()
  })
})

test('a request that does not arrive in time is given up', { timeout: 60_000 }, async () => {
  await withLimits({ requestTimeoutMs: 200 }, async (url) => {
    const client = connect({ port: Number(new URL(url).port), host: '127.0.0.1' })
    let text = ''
    client.on('data', (data) => {
      text += data
    })
    client.write(
      'POST /graphql HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{',
    )
    await until(() => text.includes('HTTP/1.1 408'), { timeout: 10_000, what: 'the end of a slow request' })
    client.destroy()
  })
})

test('only listed origins are told that they may read answers, and may open sockets', async () => {
  const corsOrigins = ['https://app.example', 'https://other.example']
  await withLimits(
    {},
    async (url) => {
      for (const origin of ['https://app.example', 'https://other.example']) {
        const answer = await post(url, WHO, { origin })
        expect(answer.headers.get('access-control-allow-origin')).toBe(origin)
        expect(answer.headers.get('access-control-allow-credentials')).toBeNull()
        const preflight = await fetch(url, {
          method: 'OPTIONS',
          headers: {
            origin,
            'access-control-request-method': 'POST',
            'access-control-request-headers': 'authorization',
          },
        })
        expect(preflight.status).toBe(204)
        expect(preflight.headers.get('access-control-allow-headers')).toContain('authorization')
        const socket = await RawSocket.open(url.replace('http:', 'ws:'), { origin })
        socket.close()
      }
      for (const origin of ['https://evil.example', 'http://app.example', 'https://app.example.evil.example', 'null']) {
        expect((await post(url, WHO, { origin })).headers.get('access-control-allow-origin'), origin).toBeNull()
        await expect(RawSocket.open(url.replace('http:', 'ws:'), { origin }), origin).rejects.toThrow('403')
      }
      expect(await refused('origin')).toBe(4)
    },
    { corsOrigins },
  )
})
