import { request } from 'node:http'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { hashApiKey, makeApiKey } from '../../src/server/auth/api-keys.ts'
import { createServer } from '../../src/server/server.ts'
import { until } from '../support/until.ts'
import { type Api, silent, startApi } from './api.ts'
import { RawSocket } from './raw-socket.ts'

const KEYS = { viewer: makeApiKey(), operator: makeApiKey(), admin: makeApiKey() } as const
const apiKeys = Object.entries(KEYS).map(([role, key]) => ({
  name: `the ${role}`,
  role: role as keyof typeof KEYS,
  hash: hashApiKey(key),
}))

let api: Api
let url: string
beforeAll(async () => {
  api = await startApi({ serving: { auth: { apiKeys } } })
  url = `${api.server.url}/graphql`
})
afterAll(() => api.stop())

const WHO = '{ viewer { name role } }'
const EVENTS = 'subscription { jobEvents { events { jobId } cursor ended } }'

function post(headers: Record<string, string>, query = WHO, type = 'application/json'): Promise<Response> {
  return fetch(url, { method: 'POST', headers: { 'content-type': type, ...headers }, body: JSON.stringify({ query }) })
}

function open(headers: Record<string, string> = {}): Promise<RawSocket> {
  return RawSocket.open(url.replace('http:', 'ws:'), headers)
}

test('a key is a name and a role, on every transport', async () => {
  for (const [role, key] of Object.entries(KEYS)) {
    const viewer = { name: `the ${role}`, role: role.toUpperCase() }
    expect(await api.run(WHO, {}, key)).toEqual({ status: 200, data: { viewer } })
    const showing: [object | undefined, Record<string, string>][] = [
      [{ Authorization: `Bearer ${key}` }, {}],
      [{ authorization: `bearer ${key}` }, {}],
      [{ token: key }, {}],
      [undefined, { authorization: `Bearer ${key}` }],
    ]
    for (const [payload, headers] of showing) {
      const socket = await open(headers)
      await socket.init(payload)
      socket.subscribe('1', WHO)
      await socket.frame('1', 'complete')
      expect(socket.next('1')).toEqual([{ data: { viewer } }])
      socket.close()
    }
  }
  const stream = await post({ authorization: `Bearer ${KEYS.viewer}`, accept: 'text/event-stream' })
  expect(await stream.text()).toContain('"role":"VIEWER"')
})

test('without a valid key nothing is told, not even what is wrong with the request', async () => {
  for (const authorization of [
    undefined,
    'Bearer',
    'Bearer nonsense',
    `Basic ${KEYS.admin}`,
    KEYS.admin,
    'Bearer a.b.c',
  ]) {
    for (const query of [WHO, '{ nonsense }', '{', EVENTS]) {
      const answer = await post(authorization === undefined ? {} : { authorization }, query)
      expect(answer.status, `${authorization} ${query}`).toBe(401)
      expect(answer.headers.get('www-authenticate')).toBe('Bearer')
      const { data, errors } = (await answer.json()) as { data?: unknown; errors: { extensions: object }[] }
      expect(data).toBeUndefined()
      expect(errors.map(({ extensions }) => extensions)).toEqual([{ code: 'UNAUTHENTICATED' }])
    }
  }
  const stream = await post({ accept: 'text/event-stream' }, EVENTS)
  expect(await stream.text()).toContain('UNAUTHENTICATED')
  // A body is not even read.
  const malformed = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{' })
  expect(malformed.status).toBe(401)
})

test('a socket without a valid key is closed, and runs nothing meanwhile', async () => {
  const before = (await api.run('{ events(first: 100) { events { id } } }', {}, KEYS.viewer)).data.events.events.length
  for (const payload of [
    undefined,
    {},
    { token: 'nonsense' },
    { token: 5 },
    { Authorization: KEYS.admin },
    { token: null },
  ]) {
    const socket = await open()
    socket.send({ type: 'connection_init', ...(payload && { payload }) })
    socket.subscribe('1', 'mutation { enqueueJob(input: { type: "a" }) { __typename } }')
    const { code, reason } = await until(() => socket.closed, { what: `close after ${JSON.stringify(payload)}` })
    expect([4401, 4403]).toContain(code)
    if (code === 4403) expect(reason).toMatch(/key or/)
    expect(socket.frames).toEqual([])
  }
  const after = (await api.run('{ events(first: 100) { events { id } } }', {}, KEYS.viewer)).data.events.events.length
  expect(after).toBe(before)
})

test('what a role does not allow is FORBIDDEN, on every transport, and the others on the socket go on', async () => {
  const mutation = 'mutation { enqueueJob(input: { type: "a" }) { __typename } }'
  expect(await api.run(mutation, {}, KEYS.viewer)).toMatchObject({
    data: null,
    errors: [{ message: 'This needs the role OPERATOR.', extensions: { code: 'FORBIDDEN' } }],
  })
  const socket = await open()
  await socket.init({ token: KEYS.viewer })
  socket.subscribe('events', EVENTS)
  await socket.frame('events', 'next')
  socket.subscribe('no', mutation)
  await socket.frame('no', 'complete')
  expect(socket.next('no')[0].errors).toMatchObject([{ extensions: { code: 'FORBIDDEN' } }])
  const made =
    'mutation { enqueueJob(input: { type: "a" }) { ... on EnqueueJobSuccess { job { events { nodes { actor } } } } } }'
  const { data } = await api.run(made, {}, KEYS.operator)
  expect(data.enqueueJob.job.events.nodes).toEqual([{ actor: 'the operator' }])
  await until(() => socket.next('events').some((frame) => frame.data.jobEvents.events.length > 0))
  socket.close()
})

test('health and the page are open, the figures are for viewers', async () => {
  for (const path of ['/healthz', '/readyz']) expect((await fetch(`${api.server.url}${path}`)).status).toBe(200)
  const metrics = `${api.server.url}/metrics`
  expect((await fetch(metrics)).status).toBe(401)
  const figures = await fetch(metrics, { headers: { authorization: `Bearer ${KEYS.viewer}` } })
  expect(figures.status).toBe(200)
  expect(await figures.text()).toMatch(/coppice_api_refused_total\{reason="unauthenticated"\} [1-9]/)
  const page = await fetch(url, { headers: { accept: 'text/html' } })
  expect(page.status).toBe(200)
  expect(await page.text()).toContain('This server asks for a key or a token.')
})

test('with keys the server may listen to other machines, by whatever name they call it', async () => {
  const server = await createServer({
    engine: api.engine,
    config: { host: '0.0.0.0', port: 0 },
    auth: { apiKeys },
    logger: silent(),
  })
  const status = await new Promise((resolve, reject) => {
    const headers = {
      host: 'jobs.example.com',
      'content-type': 'application/json',
      authorization: `Bearer ${KEYS.viewer}`,
    }
    const sent = request(`http://127.0.0.1:${server.port}/graphql`, { method: 'POST', headers }, (answer) => {
      answer.resume()
      resolve(answer.statusCode)
    })
    sent.once('error', reject)
    sent.end(JSON.stringify({ query: WHO }))
  })
  expect(status).toBe(200)
  await server.stop()
})

test('keys are kept as hashes only, and none like another', () => {
  const keys = Array.from({ length: 100 }, () => makeApiKey())
  expect(new Set(keys).size).toBe(100)
  for (const key of keys) expect(key).toMatch(/^coppice_[\w-]{43}$/)
  expect(hashApiKey('abc')).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad')
})
