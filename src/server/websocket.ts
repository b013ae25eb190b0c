import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { handleProtocols, makeServer, type Server } from 'graphql-ws'
import type { Logger } from 'pino'
import { WebSocketServer } from 'ws'
import type { ErrorMask } from './error-mask.ts'
import { type Connection, WebSocketConnection } from './websocket-connection.ts'
import { executeOptions } from './websocket-execute.ts'
import { MAX_REQUEST_BYTES, type Yoga } from './yoga.ts'

/** What the WebSocket side is made of. */
export interface WebSocketOptions {
  yoga: Yoga
  mask: ErrorMask
  logger: Logger
}

/** GraphQL over WebSocket (protocol graphql-transport-ws). */
export class GraphQLWebSockets {
  readonly #sockets = new WebSocketServer({ noServer: true, maxPayload: MAX_REQUEST_BYTES, handleProtocols })
  readonly #connections = new Set<WebSocketConnection>()
  readonly #server: Server<Connection>
  readonly #options: WebSocketOptions

  constructor(options: WebSocketOptions) {
    this.#options = options
    this.#server = makeServer<Record<string, unknown>, Connection>(executeOptions(options.yoga, options.mask))
  }

  /** Open sockets. */
  get size(): number {
    return this.#connections.size
  }

  /** Takes an upgrade request over. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.#sockets.handleUpgrade(request, socket, head, (webSocket) => {
      const { mask, logger } = this.#options
      const connection = new WebSocketConnection({ webSocket, server: this.#server, mask, logger })
      this.#connections.add(connection)
      webSocket.once('close', () => this.#connections.delete(connection))
    })
  }

  /**
   * Closes every socket with code 1012 when its operations have sent their last frames: spread over a few seconds where
   * there are many, so that their clients do not all come back in the same moment. Done when all are closed.
   */
  async close(): Promise<void> {
    const connections = [...this.#connections]
    const spreadMs = Math.min(MAX_SPREAD_MS, connections.length * SPREAD_MS)
    await Promise.all(connections.map((connection, index) => connection.drain((spreadMs * index) / connections.length)))
  }

  /** Cuts what is left. */
  terminate(): void {
    for (const connection of this.#connections) connection.terminate()
  }
}

/** Share of each socket in the time over which all are closed, and the most that this may come to. */
const SPREAD_MS = 5
const MAX_SPREAD_MS = 3000
