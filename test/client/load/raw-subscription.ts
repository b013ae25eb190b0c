import http from 'node:http'
import { WebSocket } from 'ws'

/** A subscription on a connection of its own, as cheap for its client as can be: thousands of them are one process's. */
export interface RawSubscription {
  close(): void
}

/** The ways to subscribe. */
export type TransportName = 'webSocket' | 'sse'

export interface RawSubscriptionOptions {
  /** Address of the API over HTTP. */
  url: string
  query: string
  /** Told of every frame, as text that holds its data, when it arrives. */
  onFrame(text: string): void
  /** Told that the connection has ended, unless it was closed from here. */
  onEnd(reason: string): void
}

/** Subscribes; the first frame may come before this returns. */
export function subscribeRaw(name: TransportName, options: RawSubscriptionOptions): Promise<RawSubscription> {
  return name === 'sse' ? overSse(options) : overWebSocket(options)
}

function overWebSocket({ url, query, onFrame, onEnd }: RawSubscriptionOptions): Promise<RawSubscription> {
  const socket = new WebSocket(url.replace('http', 'ws'), 'graphql-transport-ws', { perMessageDeflate: false })
  let closed = false
  return new Promise((resolve, reject) => {
    socket.on('error', reject)
    socket.on('open', () => socket.send('{"type":"connection_init"}'))
    socket.on('message', (data) => {
      const text = String(data)
      if (text.includes('"type":"next"')) onFrame(text)
      else if (text.includes('"type":"connection_ack"')) {
        socket.send(JSON.stringify({ id: '1', type: 'subscribe', payload: { query } }))
        resolve({
          close() {
            closed = true
            socket.terminate()
          },
        })
      } else onEnd(text)
    })
    socket.on('close', (code) => {
      if (!closed) onEnd(`closed with ${code}`)
    })
  })
}

function overSse({ url, query, onFrame, onEnd }: RawSubscriptionOptions): Promise<RawSubscription> {
  let closed = false
  return new Promise((resolve, reject) => {
    const request = http.request(url, {
      method: 'POST',
      // None that is shared, which would keep some waiting.
      agent: false,
      headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
    })
    request.on('error', (error) => {
      reject(error)
      if (!closed) onEnd(error.message)
    })
    request.on('response', (response) => {
      if (response.statusCode !== 200) reject(new Error(`The server answered with ${response.statusCode}`))
      let rest = ''
      response.setEncoding('utf8').on('data', (text: string) => {
        const parts = (rest + text).split('\n\n')
        rest = parts.pop()!
        for (const part of parts) if (part.includes('event: next')) onFrame(part)
      })
      response.on('close', () => {
        if (!closed) onEnd('closed')
      })
      resolve({
        close() {
          closed = true
          request.destroy()
        },
      })
    })
    request.end(JSON.stringify({ query }))
  })
}
