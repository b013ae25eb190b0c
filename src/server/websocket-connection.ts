import type { GraphQLError } from 'graphql'
import type { Server } from 'graphql-ws'
import type { Logger } from 'pino'
import { WebSocket } from 'ws'
import { UnauthenticatedError } from '../resolvers/viewer.ts'
import { atExpiry, type Session } from './auth/session.ts'
import type { ErrorMask } from './error-mask.ts'
import { LimitExceededError, type Limits } from './limits.ts'
import { isOfServers, type MessageOf, readMessage } from './messages.ts'
import { OperationCount, type Running } from './operation-count.ts'
import { OperationTurns } from './operation-turns.ts'

/** What graphql-ws keeps of a connection for us. */
export interface Connection {
  /** The header of that name of the request that opened the socket. */
  readonly authorization: string | undefined
  readonly count: OperationCount
  /** Who it is of; absent until it is acknowledged. */
  readonly session: Session | undefined
  /** Told when the caller is known, with where graphql-ws keeps the operations under way. */
  begin(session: Session, running: Running): void
  /** Told when the caller stays unknown. */
  refuse(error: GraphQLError): void
}

/** What a connection is made of. */
export interface ConnectionOptions {
  webSocket: WebSocket
  authorization: string | undefined
  limits: Limits
  server: Server<Connection>
  mask: ErrorMask
  logger: Logger
}

/** How often a socket is pinged; one that has not answered by the next time is dead. */
const PING_MS = 12_000

/** Close code of a server that restarts: clients of graphql-ws come back and subscribe anew. */
const SERVICE_RESTART = 1012
const INTERNAL_ERROR = 1011
const TRY_AGAIN_LATER = 1013
const BAD_REQUEST = 4400
const FORBIDDEN = 4403

/** How long a client has to answer that its socket is closed, in milliseconds. */
const CLOSE_MS = 1000
/** What may wait here for a client before nothing more is read from it, in bytes: each thing it says may be answered. */
const MAX_BUFFERED_BYTES = 1024 * 1024
/** Longest reason of a close frame, in bytes. */
const MAX_REASON_BYTES = 123

/** One socket: hands messages to graphql-ws, keeps it alive, and ends it so that its clients come back. */
export class WebSocketConnection {
  readonly #webSocket: WebSocket
  readonly #mask: ErrorMask
  readonly #logger: Logger
  readonly #extra: Connection
  readonly #turns = new OperationTurns()
  readonly #ping: NodeJS.Timeout
  #session: Session | undefined
  #running: Running | undefined
  #stopExpiry = () => {}
  #answered = true
  #paused = false
  /** Set while draining: called when an operation may have been the last. */
  #onComplete: (() => void) | undefined

  constructor({ webSocket, authorization, limits, server, mask, logger }: ConnectionOptions) {
    const session = () => this.#session
    this.#extra = {
      authorization,
      count: new OperationCount(limits),
      get session() {
        return session()
      },
      begin: (known, running) => this.#begin(known, running),
      refuse: (error) => this.#refuse(error),
    }
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
      this.#stopExpiry()
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
        if (over || Object.keys(this.#running ?? {}).length === 0) resolve()
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

  #begin(session: Session, running: Running): void {
    this.#session = session
    this.#running = running
    const expired = () =>
      this.#closeNow(FORBIDDEN, this.#mask(new UnauthenticatedError('The token has expired.')).message)
    this.#stopExpiry = atExpiry(session, expired)
  }

  #refuse({ message, extensions }: GraphQLError): void {
    this.#closeNow(extensions.code === 'UNAVAILABLE' ? TRY_AGAIN_LATER : FORBIDDEN, message)
  }

  /** Closes the socket; a client that does not answer is cut. */
  #closeNow(code: number, reason: string): void {
    this.#webSocket.close(code, Buffer.from(reason).subarray(0, MAX_REASON_BYTES))
    const cut = setTimeout(() => this.#webSocket.terminate(), CLOSE_MS)
    this.#webSocket.once('close', () => clearTimeout(cut))
  }

  #receive(text: string, listener: (text: string) => Promise<void>): void {
    // A socket that was closed from here still reads until the client has answered.
    if (this.#webSocket.readyState !== WebSocket.OPEN) return
    const message = readMessage(text)
    if (isOfServers(message)) {
      this.#closeNow(BAD_REQUEST, 'Invalid message received')
      return
    }
    const isRunning = (id: string) => this.#running !== undefined && id in this.#running
    const taken = this.#turns.take(message, isRunning, () => this.#deal(text, message, listener))
    if (!taken) void this.#sendError(message.id!, new LimitExceededError('operations', TOO_FAST))
  }

  async #deal(text: string, message: MessageOf, listener: (text: string) => Promise<void>): Promise<void> {
    const { id = '', malformed } = message
    try {
      if (malformed !== undefined && this.#running && !(id in this.#running)) {
        await this.#sendError(id, new MalformedOperationError(malformed))
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
      this.#webSocket.send(data, () => {
        this.#heed()
        resolve()
      })
      this.#heed()
    })
  }

  /** Reads nothing more from a client that does not read: else it could let the answers pile up here. */
  #heed(): void {
    const { bufferedAmount } = this.#webSocket
    if (!this.#paused && bufferedAmount > MAX_BUFFERED_BYTES) {
      this.#paused = true
      this.#webSocket.pause()
    } else if (this.#paused && bufferedAmount < MAX_BUFFERED_BYTES / 2) {
      this.#paused = false
      this.#webSocket.resume()
    }
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

const TOO_FAST = 'Too many messages wait for the operation of this id to end.'

/** An operation whose message has an id, but no query or the wrong kind of variables. */
class MalformedOperationError extends Error {
  readonly code = 'BAD_REQUEST'
}

function isComplete(data: string): boolean {
  return data.includes('"type":"complete"') && (JSON.parse(data) as { type: string }).type === 'complete'
}
