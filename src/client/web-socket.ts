import { createClient } from 'graphql-ws'
import { ConnectionLostError, errorOf, type GraphQLErrorLike, UnauthenticatedError } from './errors.ts'
import { type Result, type Token, TokenSource, type Transport } from './transport.ts'

/** How to reach the API over a WebSocket. */
export interface WebSocketOptions {
  /** Such as `wss://jobs.example.com/graphql`. */
  url: string
  token?: Token | undefined
  /** A class like the browser's `WebSocket`, where there is none: `WebSocket` of the package `ws` in Node before 22. */
  webSocketImpl?: unknown
  /** A ping that has no answer after so long shows that the connection is gone, in milliseconds; default 10,000. */
  silenceMs?: number | undefined
}

/** Frames that wait for a consumer; beyond that the subscription is broken off, and goes on when they are consumed. */
const MAX_WAITING = 1_000
const NORMAL = 1000
const BAD_REQUEST = 4400
const UNAUTHORISED = 4401
/** The token is refused, or has expired. */
const FORBIDDEN = 4403
const BAD_SUBPROTOCOL = 4406

/** Subscriptions over one WebSocket for all, which is open while there are any. */
export function webSocket(options: WebSocketOptions): Transport {
  const { url, silenceMs = 10_000 } = options
  const tokens = new TokenSource(options.token)
  /** Of the subscriptions that have had a frame: how each is broken off. */
  const begun = new Set<(reason: unknown) => void>()
  let silence: ReturnType<typeof setTimeout> | undefined
  const client = createClient({
    url,
    // Coming back is not its business: it would subscribe with the cursor of the beginning.
    retryAttempts: 0,
    keepAlive: silenceMs,
    ...(options.webSocketImpl !== undefined && { webSocketImpl: options.webSocketImpl }),
    async connectionParams() {
      const token = await tokens.get()
      return token === undefined ? {} : { authorization: `Bearer ${token}` }
    },
    on: {
      connected: () => tokens.accept(),
      ping(received) {
        if (!received) silence = setTimeout(() => client.terminate(), silenceMs)
      },
      pong(received) {
        if (received) clearTimeout(silence)
      },
      closed(event) {
        clearTimeout(silence)
        if (closeCodeOf(event) === UNAUTHORISED || closeCodeOf(event) === FORBIDDEN) tokens.refuse()
        // After a normal closure it would subscribe again by itself, with that cursor. Every other one it hands on.
        if (closeCodeOf(event) === NORMAL) for (const lose of [...begun]) lose(event)
      },
    },
  })

  return {
    async *run(operation, signal) {
      const waiting: Result[] = []
      let end: { error?: unknown } | undefined
      let wake = () => {}
      const finish = (how: { error?: unknown }) => {
        end ??= how
        wake()
      }
      const lose = (reason: unknown) => {
        finish({ error: reason })
        dispose()
      }
      const dispose = client.subscribe<Record<string, unknown>>(operation, {
        next(result) {
          if (end !== undefined) return
          tokens.look((result as Result).errors)
          begun.add(lose)
          waiting.push(result as Result)
          if (waiting.length > MAX_WAITING) lose(new ConnectionLostError('The frames are consumed too slowly.'))
          wake()
        },
        error(error) {
          if (Array.isArray(error)) tokens.look(error as GraphQLErrorLike[])
          finish({ error })
        },
        complete: () => finish({}),
      })
      const leave = () => finish({})
      signal.addEventListener('abort', leave)
      try {
        while (!signal.aborted) {
          const result = waiting.shift()
          if (result !== undefined) yield result
          else if (end === undefined) {
            await new Promise<void>((resolve) => {
              wake = resolve
            })
          } else if ('error' in end) throw lossOf(end.error)
          else return
        }
      } finally {
        begun.delete(lose)
        signal.removeEventListener('abort', leave)
        dispose()
      }
    },
  }
}

/** What to throw: for errors of the operation, for the way in which the socket was closed, for a socket that failed. */
function lossOf(reason: unknown): Error {
  if (reason instanceof ConnectionLostError) return reason
  if (Array.isArray(reason)) return errorOf(reason as GraphQLErrorLike[])
  const code = closeCodeOf(reason)
  const text = `The socket was closed with code ${code}.`
  if (code === UNAUTHORISED || code === FORBIDDEN) return new UnauthenticatedError(text)
  if (code === BAD_REQUEST || code === BAD_SUBPROTOCOL) return errorOf([{ message: text }])
  return new ConnectionLostError(code === undefined ? 'The connection broke off.' : text, { cause: reason })
}

function closeCodeOf(event: unknown): number | undefined {
  if (typeof event !== 'object' || event === null || !('code' in event)) return undefined
  return typeof event.code === 'number' ? event.code : undefined
}
