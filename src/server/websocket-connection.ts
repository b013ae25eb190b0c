import { type Server, validateMessage, type Context as WsContext } from 'graphql-ws'
import type { Logger } from 'pino'
import { WebSocket } from 'ws'
import type { ErrorMask } from './error-mask.ts'

/** What graphql-ws keeps of a connection for us. */
export interface Connection {
  /** Operations under way, by id; absent until the connection is acknowledged. */
  subscriptions?: WsContext['subscriptions']
}

/** What a connection is made of. */
export interface ConnectionOptions {
  webSocket: WebSocket
  server: Server<Connection>
  mask: ErrorMask
  logger: Logger
}

/** How often a socket is pinged; one that has not answered by the next time is dead. */
const PING_MS = 12_000

/** Close code of a server that restarts: clients of graphql-ws come back and subscribe anew. */
const SERVICE_RESTART = 1012
const INTERNAL_ERROR = 1011

/** One socket: hands messages to graphql-ws, keeps it alive, and ends it so that its clients come back. */
export class WebSocketConnection {
  readonly #webSocket: WebSocket
  readonly #mask: ErrorMask
  readonly #logger: Logger
  readonly #extra: Connection = {}
  readonly #ping: NodeJS.Timeout
  #answered = true
  /** Set while draining: called when an operation may have been the last. */
  #onComplete: (() => void) | undefined

  constructor({ webSocket, server, mask, logger }: ConnectionOptions) {
    this.#webSocket = webSocket
    this.#mask = mask
    this.#logger = logger
    this.#ping = setInterval(() => this.#keepAlive(), PING_MS)
    webSocket.on('pong', () => {
      this.#answered = true
    })
    // Frames that are too large or malformed: ws closes the socket itself, with the fitting code.
    webSocket.on('error', (error) => logger.debug({ err: error }, 'a WebSocket failed'))
    const closed = server.opened(
      {
        protocol: webSocket.protocol,
        send: (data) => this.#send(data),
        close: (code, reason) => webSocket.close(code, reason),
        onMessage: (listener) => {
          webSocket.on('message', (data) => this.#receive(String(data), listener))
        },
      },
      this.#extra,
    )
    webSocket.once('close', (code, reason) => {
      clearInterval(this.#ping)
      this.#onComplete?.()
      closed(code, String(reason))?.catch((error: unknown) => this.#logFault(error))
    })
  }

  /**
   * Lets the operations send their last frames, without Complete (a client that gets Complete does not subscribe again),
   * then closes. Done when the socket is closed.
   */
  async drain(delayMs: number): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#onComplete = () => {
        const over = this.#webSocket.readyState === WebSocket.CLOSED
        if (over || Object.keys(this.#extra.subscriptions ?? {}).length === 0) resolve()
      }
      setImmediate(this.#onComplete)
    })
    await new Promise((done) => setTimeout(done, delayMs))
    if (this.#webSocket.readyState === WebSocket.CLOSED) return
    const closed = new Promise((done) => this.#webSocket.once('close', done))
    this.#webSocket.close(SERVICE_RESTART, 'Service restart')
    await closed
  }

  /** Cuts the socket. */
  terminate(): void {
    this.#webSocket.terminate()
  }

  async #receive(text: string, listener: (text: string) => Promise<void>): Promise<void> {
    const malformed = malformedOperation(text)
    try {
      if (malformed && this.#extra.subscriptions && !(malformed.id in this.#extra.subscriptions)) {
        await this.#sendError(malformed.id, new MalformedOperationError(malformed.why))
      } else await listener(text)
    } catch (error) {
      // Nothing that an operation does ends here; what does is a fault of this connection's own.
      this.#logFault(error)
      this.#webSocket.close(INTERNAL_ERROR, 'Internal error')
    }
  }

  /** Settles when the data has left the process: a client that does not read holds its operations back. */
  #send(data: string): Promise<void> {
    return new Promise((resolve) => {
      if (this.#onComplete && isComplete(data)) {
        // graphql-ws takes the operation from its list right after this.
        setImmediate(this.#onComplete)
        return resolve()
      }
      if (this.#webSocket.readyState !== WebSocket.OPEN) return resolve()
      // An error here is the socket's end, of which `close` tells.
      this.#webSocket.send(data, () => resolve())
    })
  }

  #sendError(id: string, error: unknown): Promise<void> {
    const { message, extensions } = this.#mask(error)
    const { http: _http, ...rest } = extensions
    return this.#send(JSON.stringify({ id, type: 'error', payload: [{ message, extensions: rest }] }))
  }

  #keepAlive(): void {
    if (!this.#answered) {
      this.#webSocket.terminate()
      return
    }
    this.#answered = false
    this.#webSocket.ping()
  }

  #logFault(error: unknown): void {
    this.#logger.error({ err: error }, 'a WebSocket connection failed')
  }
}

/** An operation whose message has an id, but no query or the wrong kind of variables. */
class MalformedOperationError extends Error {
  readonly code = 'BAD_REQUEST'
}

/**
 * The id of a `subscribe` message that makes no sense otherwise, and what is wrong: it is answered with an error of its
 * own, where graphql-ws would close the socket and all other operations with it. Undefined for any other message.
 */
function malformedOperation(text: string): { id: string; why: string } | undefined {
  let message: unknown
  try {
    message = JSON.parse(text)
    validateMessage(message)
  } catch (error) {
    if (typeof message !== 'object' || message === null) return undefined
    const { type, id } = message as { type?: unknown; id?: unknown }
    if (type !== 'subscribe' || typeof id !== 'string' || id === '') return undefined
    return { id, why: error instanceof Error ? error.message : String(error) }
  }
  return undefined
}

function isComplete(data: string): boolean {
  return data.includes('"type":"complete"') && (JSON.parse(data) as { type: string }).type === 'complete'
}
