import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { createClient, sse, type Token, type TokenRequest, type Transport, webSocket } from '../../src/client/index.ts'
import { until } from '../support/until.ts'

// Against servers that behave as the real one never should, or does only after hours.

const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0)) await close()
})

/** What a server was asked. */
interface Asked {
  token: string | undefined
  after: unknown
}

/** An HTTP server; returns its address. */
async function serveHttp(answer: (asked: Asked, response: ServerResponse, count: number) => void): Promise<string> {
  let count = 0
  const server = createServer(async (request: IncomingMessage, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const token = request.headers.authorization?.replace('Bearer ', '')
    answer({ token, after: JSON.parse(body).variables.after }, response, ++count)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  closing.push(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/graphql`
}

/** A WebSocket server that acknowledges, unless it closes; returns its address. */
async function serveWebSocket(
  answer: (asked: Asked, socket: WebSocket, id: string, count: number) => void,
  accept: (token: string | undefined, socket: WebSocket) => boolean = () => true,
): Promise<string> {
  let count = 0
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' })
  await new Promise((resolve) => server.once('listening', resolve))
  server.on('connection', (socket) => {
    let token: string | undefined
    socket.on('message', (data) => {
      const message = JSON.parse(String(data))
      if (message.type === 'connection_init') {
        token = message.payload?.authorization?.replace('Bearer ', '')
        if (accept(token, socket)) socket.send('{"type":"connection_ack"}')
      } else if (message.type === 'subscribe') {
        answer({ token, after: message.payload.variables.after }, socket, message.id, ++count)
      }
    })
  })
  closing.push(() => {
    for (const socket of server.clients) socket.terminate()
    server.close()
  })
  return `ws://127.0.0.1:${(server.address() as AddressInfo).port}/graphql`
}

const frame = (cursor: string, ids: number[] = []) => ({
  data: {
    jobEvents: {
      events: ids.map((id) => ({ id: `EV_${id}`, jobId: 'JB_1' })),
      cursor,
      caughtUp: true,
      ended: null,
    },
  },
})

const BACKOFF = { first: 5, most: 20 }
const clientOf = (transport: Transport) => createClient({ transport, backoff: BACKOFF })

/** Ids until there are so many. */
async function idsOf(transport: Transport, count: number): Promise<string[]> {
  const ids: string[] = []
  for await (const got of clientOf(transport).watchEvents()) {
    if (got.type === 'events') ids.push(...got.events.map((event) => event.id))
    if (ids.length >= count) break
  }
  return ids
}

describe('over SSE', () => {
  const begin = (response: ServerResponse) => response.writeHead(200, { 'content-type': 'text/event-stream' })
  const next = (result: object) => `event: next\ndata: ${JSON.stringify(result)}\n\n`

  test('a stream that stops in the middle of a frame, ends early, or is refused for now, goes on at its cursor', async () => {
    const asked: unknown[] = []
    const url = await serveHttp(({ after }, response, count) => {
      asked.push(after)
      if (count === 1) begin(response).end(`${next(frame('a', [1]))}event: next\ndata: {"da`)
      else if (count === 2) response.writeHead(502, { 'content-type': 'text/html' }).end('<h1>Bad gateway</h1>')
      else if (count === 3)
        response.writeHead(503).end('{"errors":[{"message":"stopping","extensions":{"code":"UNAVAILABLE"}}]}')
      else if (count === 4)
        begin(response).end(next({ errors: [{ message: 'later', extensions: { code: 'UNAVAILABLE' } }] }))
      else if (count === 5) begin(response).write(next(frame('b', [1, 2])), () => response.destroy())
      else begin(response).write(next(frame('c', [3])))
    })
    // What is repeated is told once.
    expect(await idsOf(sse({ url }), 3)).toEqual(['EV_1', 'EV_2', 'EV_3'])
    expect(asked).toEqual([undefined, 'a', 'a', 'a', 'a', 'b'])
  })

  test('a connection on which nothing comes, not even a comment, is given up', async () => {
    let comments = 0
    const url = await serveHttp((_asked, response, count) => {
      begin(response).write(next(frame('a', [count])))
      if (count !== 2) return
      const timer = setInterval(() => response.write(':\n\n') && comments++, 50)
      response.on('close', () => clearInterval(timer))
      setTimeout(() => response.write(next(frame('b', [7]))), 2500)
    })
    expect(await idsOf(sse({ url, silenceMs: 1000 }), 3)).toEqual(['EV_1', 'EV_2', 'EV_7'])
    expect(comments).toBeGreaterThan(3)
  })

  test('a token that is refused is asked for anew, once', async () => {
    const requests: TokenRequest[] = []
    const token = (request: TokenRequest) => {
      requests.push(request)
      return request.refused ? 'new' : 'old'
    }
    const url = await serveHttp(({ token: shown }, response) => {
      if (shown === 'new') begin(response).write(next(frame('a', [1])))
      else response.writeHead(401).end('{"errors":[{"message":"Who?","extensions":{"code":"UNAUTHENTICATED"}}]}')
    })
    expect(await idsOf(sse({ url, token }), 1)).toEqual(['EV_1'])
    expect(requests).toEqual([{ refused: false }, { refused: true }])
    await expect(idsOf(sse({ url, token: 'old' }), 1)).rejects.toMatchObject({
      code: 'UNAUTHENTICATED',
      message: 'Who?',
    })
  })

  test('a token that expires while a stream is open is asked for anew', async () => {
    const requests: TokenRequest[] = []
    const token = (request: TokenRequest) => {
      requests.push(request)
      return 'token'
    }
    const expired = { errors: [{ message: 'The token has expired.', extensions: { code: 'UNAUTHENTICATED' } }] }
    const url = await serveHttp((_asked, response, count) => {
      begin(response).write(next(frame(String(count), [count])))
      if (count < 3) response.end(`${next(expired)}event: complete\n\n`)
    })
    expect(await idsOf(sse({ url, token }), 3)).toEqual(['EV_1', 'EV_2', 'EV_3'])
    expect(requests).toEqual([{ refused: false }, { refused: true }, { refused: true }])
  })

  test('what is no stream is thrown', async () => {
    const url = await serveHttp((_asked, response, count) => {
      if (count === 1) response.writeHead(404, { 'content-type': 'text/plain' }).end('nothing here')
      else response.writeHead(400).end('{"errors":[{"message":"No.","extensions":{"code":"LIMIT_EXCEEDED"}}]}')
    })
    await expect(idsOf(sse({ url }), 1)).rejects.toThrow('status 404')
    await expect(idsOf(sse({ url }), 1)).rejects.toMatchObject({ code: 'LIMIT_EXCEEDED', message: 'No.' })
  })
})

describe('over WebSocket', () => {
  const connect = (url: string, token?: Token) => webSocket({ url, webSocketImpl: WebSocket, token, silenceMs: 100 })
  const next = (id: string, result: object) => JSON.stringify({ type: 'next', id, payload: result })

  test.each([1000, 1001, 1006, 1011, 1012, 4499])(
    'a socket that is closed with %i goes on at its cursor',
    async (code) => {
      const asked: unknown[] = []
      const url = await serveWebSocket(({ after }, socket, id, count) => {
        asked.push(after)
        if (count === 1) {
          socket.send(next(id, frame('a', [1])))
          if (code === 1006) socket.terminate()
          else socket.close(code)
        } else socket.send(next(id, frame('b', [2])))
      })
      expect(await idsOf(connect(url), 2)).toEqual(['EV_1', 'EV_2'])
      expect(asked).toEqual([undefined, 'a'])
    },
  )

  test('a socket that no longer answers pings is given up', async () => {
    const url = await serveWebSocket((_asked, socket, id, count) => {
      // A host that is gone answers nothing.
      if (count === 1) socket.send(next(id, frame('a', [1])), () => socket.pause())
      else socket.send(next(id, frame('b', [2])))
    })
    expect(await idsOf(connect(url), 2)).toEqual(['EV_1', 'EV_2'])
  })

  test.each([4401, 4403])('a token that is refused or expires (%i) is asked for anew, once', async (code) => {
    const requests: TokenRequest[] = []
    const token = (request: TokenRequest) => {
      requests.push(request)
      return request.refused ? 'new' : 'old'
    }
    const url = await serveWebSocket(
      (_asked, socket, id) => socket.send(next(id, frame('a', [1]))),
      (shown, socket) => {
        if (shown === 'new') return true
        socket.close(code)
        return false
      },
    )
    expect(await idsOf(connect(url, token), 1)).toEqual(['EV_1'])
    expect(requests).toEqual([{ refused: false }, { refused: true }])
    await expect(idsOf(connect(url, 'old'), 1)).rejects.toMatchObject({ code: 'UNAUTHENTICATED' })
  })

  test('frames that nobody consumes do not heap up: it is broken off, and goes on when they are', async () => {
    let closed = 0
    const asked: unknown[] = []
    const url = await serveWebSocket(({ after }, socket, id) => {
      asked.push(after)
      socket.on('close', () => closed++)
      const from = after === undefined ? 0 : Number(after)
      for (let n = from + 1; n <= Math.min(from + 3000, 5000); n++) socket.send(next(id, frame(String(n), [n])))
    })
    const events = clientOf(connect(url)).watchEvents()
    const first = await events.next()
    // Nobody asks for more meanwhile.
    await until(() => closed === 1)
    const ids = first.value!.type === 'events' ? first.value!.events.map((event) => event.id) : []
    for await (const got of events) {
      if (got.type === 'events') ids.push(...got.events.map((event) => event.id))
      if (ids.length === 5000) break
    }
    expect(ids).toEqual(Array.from({ length: 5000 }, (_, n) => `EV_${n + 1}`))
    expect(Number(asked[1])).toBeGreaterThan(900)
    expect(Number(asked[1])).toBeLessThan(1100)
  })

  test('one socket serves all, and is closed with the last; a new one is opened after that', async () => {
    const sockets = new Set<WebSocket>()
    const url = await serveWebSocket((_asked, socket, id, count) => {
      sockets.add(socket)
      socket.send(next(id, frame('a', [count])))
    })
    const transport = connect(url)
    const client = clientOf(transport)
    const [one, two] = [client.watchEvents(), client.watchEvents()]
    await Promise.all([one.next(), two.next()])
    expect(sockets.size).toBe(1)
    await one.return!()
    await two.return!()
    // At once, while the socket is perhaps still closing.
    expect(await idsOf(transport, 1)).toEqual(['EV_3'])
    await until(() => [...sockets].every((socket) => socket.readyState === WebSocket.CLOSED))
    const { size } = sockets
    expect(await idsOf(transport, 1)).toEqual(['EV_4'])
    expect(sockets.size).toBe(size + 1)
  })
})
