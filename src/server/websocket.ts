import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { handleProtocols, makeServer, type Server } from 'graphql-ws'
import type { Logger } from 'pino'
import { WebSocketServer } from 'ws'
import type { Limits } from './limits.ts'
import { type Connection, WebSocketConnection } from './websocket-connection.ts'
import { type ExecuteOptions, executeOptions } from './websocket-execute.ts'

/** What the WebSocket side is made of. */
export interface WebSocketOptions extends ExecuteOptions {
  limits: Limits
  logger: Logger
}

/** GraphQL over WebSocket (protocol graphql-transport-ws). */
export class GraphQLWebSockets {
  readonly #sockets: WebSocketServer
  readonly #connections = new Set<WebSocketConnection>()
  readonly #server: Server<Connection>
  readonly #options: WebSocketOptions

  constructor(options: WebSocketOptions) {
    this.#options = options
    this.#sockets = new WebSocketServer({
      noServer: true,
      maxPayload: options.limits.maxRequestBytes,
      handleProtocols,
    })
    this.#server = makeServer<Record<string, unknown>, Connection>(executeOptions(options))
  }

  /** Open sockets. */
  get size(): number {
    return this.#connections.size
  }

  /** Takes an upgrade request over. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.#sockets.handleUpgrade(request, socket, head, (webSocket) => {
      const { limits, mask, logger } = this.#options
      const { authorization } = request.headers
      const server = this.#server
      const connection = new WebSocketConnection({ webSocket, authorization, limits, server, mask, logger })
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
