import { request } from 'node:http'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createServer } from '../../src/server/server.ts'
import { type Api, silent, startApi } from './api.ts'
import { RawSocket } from './raw-socket.ts'

let api: Api
let url: string
beforeAll(async () => {
  api = await startApi()
  url = `${api.server.url}/graphql`
})
afterAll(() => api.stop())

const QUERY = JSON.stringify({ query: '{ viewer { name } }' })
const JSON_TYPE = { 'content-type': 'application/json' }

function post(body: string, headers: Record<string, string> = JSON_TYPE): Promise<Response> {
  return fetch(url, { method: 'POST', headers, body })
}

/** A request with headers that fetch would not send. */
function raw(headers: Record<string, string>, path = '/graphql'): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const outgoing = request(`${api.server.url}${path}`, { method: 'POST', headers }, (incoming) => {
      let body = ''
      incoming.on('data', (chunk) => {
        body += chunk
      })
      incoming.on('end', () => resolve({ status: incoming.statusCode!, body }))
    })
    outgoing.on('error', reject)
    outgoing.end(QUERY)
  })
}

test('plain curl with a JSON content type works', async () => {
  const answer = await post(QUERY)
  expect(answer.status).toBe(200)
  expect(await answer.json()).toEqual({ data: { viewer: { name: 'anonymous' } } })
})

test('GraphiQL is there, whole: nothing in the page is fetched from elsewhere', async () => {
  const answer = await fetch(url, { headers: { accept: 'text/html' } })
  expect(answer.status).toBe(200)
  expect(answer.headers.get('content-type')).toContain('text/html')
  const page = await answer.text()
  expect(page).toContain('YogaGraphiQL.renderYogaGraphiQL')
  expect(page).toContain('"subscriptionsProtocol":"SSE"')
  // By GET, its subscriptions would be refused like those of any page.
  expect(page).toContain('"method":"POST"')
  // Whatever loads something: elements before and after the one big script, and imports and fonts in the styles.
  const markup = page.replaceAll(/<script\b[^>]*>[\s\S]*?<\/script>/g, (script) =>
    script.slice(0, script.indexOf('>') + 1),
  )
  const loads = [...markup.matchAll(/(?:\bsrc|\bhref|\burl|@import)\s*(?:=\s*["']?|\(\s*["']?|\s+["'])([^"')\s>]+)/gi)]
  expect(loads.length).toBeGreaterThan(0)
  for (const [whole, target] of loads) expect(target, whole.slice(0, 200)).toMatch(/^(data:|#|blob:)/)
  expect(answer.headers.get('x-frame-options')).toBe('DENY')
  const policy = answer.headers.get('content-security-policy')
  expect(policy).toContain("default-src 'none'")
  expect(policy).toContain("connect-src 'self'")
  expect(policy).not.toContain('http')
})

test('the introspection that GraphiQL sends works', async () => {
  const { getIntrospectionQuery, buildClientSchema } = await import('graphql')
  const data = await api.ask(getIntrospectionQuery({ inputValueDeprecation: true, schemaDescription: true }))
  expect(Object.keys(buildClientSchema(data).getTypeMap())).toContain('EnqueueJobInput')
})

test('requests that a page of another site could send are refused', async () => {
  for (const [headers, status] of [
    [{ 'content-type': 'text/plain' }, 403],
    [{ 'content-type': 'application/x-www-form-urlencoded' }, 403],
    [{}, 403],
    [{ 'content-type': 'multipart/form-data; boundary=x' }, 403],
    [{ 'content-type': 'text/plain', 'x-coppice-csrf': '1' }, 415],
  ] as const) {
    const answer = await post(QUERY, headers)
    expect(answer.status, JSON.stringify(headers)).toBe(status)
  }
  const get = await fetch(`${url}?query=${encodeURIComponent('{ viewer { name } }')}`)
  expect(get.status).toBe(403)
  expect((await get.json()) as object).toMatchObject({ errors: [{ extensions: { code: 'FORBIDDEN' } }] })
  const allowed = await fetch(`${url}?query=${encodeURIComponent('{ viewer { name } }')}`, {
    headers: { 'x-coppice-csrf': '1' },
  })
  expect(await allowed.json()).toEqual({ data: { viewer: { name: 'anonymous' } } })
  const mutation = await fetch(
    `${url}?query=${encodeURIComponent('mutation { enqueueJob(input: { type: "a" }) { __typename } }')}`,
    {
      headers: { 'x-coppice-csrf': '1' },
    },
  )
  expect(mutation.status).toBe(405)
})

test('no other origin is told that it may read answers', async () => {
  for (const answer of [
    await post(QUERY, { ...JSON_TYPE, origin: 'https://evil.example' }),
    await fetch(url, {
      method: 'OPTIONS',
      headers: {
        origin: 'https://evil.example',
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'content-type',
      },
    }),
  ]) {
    expect([...answer.headers.keys()].filter((name) => name.startsWith('access-control'))).toEqual([])
  }
})

test('names other than of this machine are refused: DNS rebinding', async () => {
  expect((await raw({ ...JSON_TYPE, host: `evil.example:${api.server.port}` })).status).toBe(403)
  expect((await raw({ ...JSON_TYPE, host: '127.0.0.1.evil.example' })).status).toBe(403)
  expect((await raw({ ...JSON_TYPE, host: `LOCALHOST:${api.server.port}` })).status).toBe(200)
  expect((await raw({ ...JSON_TYPE, host: `[::1]:${api.server.port}` })).status).toBe(200)
})

test('WebSockets of other origins, names and paths are refused', async () => {
  const ws = url.replace('http:', 'ws:')
  for (const headers of [
    { origin: 'https://evil.example' },
    { origin: 'null' },
    { origin: `http://localhost:${api.server.port + 1}` },
    { host: 'evil.example' },
  ] as Record<string, string>[]) {
    await expect(RawSocket.open(ws, headers), JSON.stringify(headers)).rejects.toThrow('403')
  }
  await expect(RawSocket.open(ws.replace('/graphql', '/other'))).rejects.toThrow('404')
  const own = await RawSocket.open(ws, { origin: api.server.url })
  await own.init()
  own.close()
})

test('bodies of more than 256 KiB are refused, with and without a length', async () => {
  const query = `{ viewer { name } } # ${'x'.repeat(256 * 1024)}`
  const known = await post(JSON.stringify({ query }))
  expect(known.status).toBe(413)
  expect(await known.json()).toMatchObject({ errors: [{ extensions: { code: 'LIMIT_EXCEEDED' } }] })
  async function* chunks() {
    const text = JSON.stringify({ query })
    for (let at = 0; at < text.length; at += 10_000) yield new TextEncoder().encode(text.slice(at, at + 10_000))
  }
  const chunked = await fetch(url, {
    method: 'POST',
    headers: JSON_TYPE,
    body: Readable.toWeb(Readable.from(chunks())),
    duplex: 'half',
  } as RequestInit)
  expect(chunked.status).toBe(413)
  expect((await post(QUERY)).status).toBe(200)
})

test('a body that is no JSON, or no request, is answered with 400, whatever the caller accepts', async () => {
  for (const body of [
    '',
    '{',
    '{"query":',
    'query',
    '\u0000',
    '[]',
    '"x"',
    '5',
    'null',
    '{}',
    '{"query":5}',
    `[${QUERY}]`,
  ]) {
    for (const accept of ['*/*', 'application/json', 'application/graphql-response+json', 'text/event-stream']) {
      const answer = await post(body, { ...JSON_TYPE, accept })
      expect(answer.status, `${body} ${accept}`).toBe(400)
      expect(await answer.text()).toContain('BAD_REQUEST')
    }
  }
  // The specification wants 200 for what is wrong with a document itself, where plain JSON is accepted.
  for (const [accept, status] of [
    ['application/json', 200],
    ['application/graphql-response+json', 400],
  ] as const) {
    const answer = await post(JSON.stringify({ query: '{ nonsense }' }), { ...JSON_TYPE, accept })
    expect(answer.status, accept).toBe(status)
  }
})

test('what is no GraphQL request is answered without a fault of ours', async () => {
  for (const body of [
    '',
    '{',
    '[]',
    '"x"',
    '5',
    'null',
    '{"query":5}',
    '{"query":"{"}',
    '{"variables":[]}',
    `[${QUERY}]`,
  ]) {
    const answer = await post(body)
    expect(answer.status, body).toBeGreaterThanOrEqual(200)
    expect(answer.status, body).toBeLessThan(500)
    expect((await answer.json()) as object, body).toMatchObject({ errors: [{ extensions: { code: 'BAD_REQUEST' } }] })
  }
  expect((await fetch(`${api.server.url}/nothing`)).status).toBe(404)
  expect((await fetch(`${api.server.url}/`, { redirect: 'manual' })).headers.get('location')).toBe('/graphql')
  expect(api.log).toEqual([])
})

test('documents that are too long or too deep to be parsed are refused on every transport', async () => {
  const documents = [
    '{a'.repeat(80_000),
    `{ jobs(first: ${'['.repeat(100_000)}) }`,
    `{ ${'viewer { name } '.repeat(2000)} }`,
  ]
  const socket = await api.socket()
  for (const [index, query] of documents.entries()) {
    expect((await api.run(query)).errors).toMatchObject([{ extensions: { code: 'LIMIT_EXCEEDED' } }])
    socket.subscribe(`${index}`, query)
    expect((await socket.frame(`${index}`, 'error')).payload).toMatchObject([
      { extensions: { code: 'LIMIT_EXCEEDED' } },
    ])
  }
  expect(socket.closed).toBeUndefined()
  socket.close()
  const nested = `${'['.repeat(50_000)}${']'.repeat(50_000)}`
  const query = 'mutation ($p: JSON) { enqueueJob(input: { type: "a", payload: $p }) { __typename } }'
  const answer = await post(`{"query":${JSON.stringify(query)},"variables":{"p":${nested}}}`)
  expect(await answer.json()).toEqual({ data: { enqueueJob: { __typename: 'ValidationError' } } })
  expect(api.log).toEqual([])
})

test('a host that other machines can reach is refused where no authentication is set up', async () => {
  for (const host of ['0.0.0.0', '::', '192.168.1.5', 'example.com', '']) {
    const made = createServer({ engine: api.engine, config: { host, port: 0 }, logger: silent() })
    await expect(made, host).rejects.toMatchObject({ code: 'INSECURE_HOST' })
  }
  for (const host of ['localhost', '127.0.0.1']) {
    const server = await createServer({ engine: api.engine, config: { host, port: 0 }, logger: silent() })
    expect((await fetch(`${server.url}/healthz`)).status).toBe(200)
    await server.stop()
  }
})

test('a port that is taken is an error with its code', async () => {
  const made = createServer({
    engine: api.engine,
    config: { host: '127.0.0.1', port: api.server.port },
    logger: silent(),
  })
  await expect(made).rejects.toMatchObject({ code: 'EADDRINUSE' })
})
