import { setMaxListeners } from 'node:events'
import {
  createServer as createHttpServer,
  type Server as HttpServer,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import type { Logger } from 'pino'
import type { ApiEngine } from '../resolvers/api-engine.ts'
import { createErrorMask } from './error-mask.ts'
import { readiness } from './health.ts'
import { InsecureHostError, isLoopback, isSameOrigin, namesLoopback } from './loopback.ts'
import { answerMetrics } from './metrics.ts'
import { answer, answerError, refuseUpgrade } from './plain-answer.ts'
import { followUnusedConnections } from './unused-connections.ts'
import { GraphQLWebSockets } from './websocket.ts'
import { GRAPHQL_PATH, makeYoga, type Yoga } from './yoga.ts'

/** What a server is made of. */
export interface ServerOptions {
  engine: ApiEngine
  /** Port 0 takes a free one. */
  config: { host: string; port: number }
  logger: Logger
}

/** The API of one engine, listening. */
export interface ApiServer {
  readonly port: number
  /** Where it is: `http://127.0.0.1:4000`. */
  readonly url: string
  /**
   * Stops: not ready any more, no new connections, every subscription gets its last frame, WebSockets are closed with
   * 1012, and what is still there after five seconds is cut. The engine goes on; stop it afterwards.
   */
  stop(): Promise<void>
}

/** How long clients have to take their last frames and go, in milliseconds. */
const STRAGGLER_MS = 5000
const IDLE_SWEEP_MS = 20

/** The API on one port: GraphQL over HTTP, SSE and WebSocket, GraphiQL, health, readiness and figures. */
class Server implements ApiServer {
  readonly #options: ServerOptions
  readonly #closing = new AbortController()
  readonly #yoga: Yoga
  readonly #sockets: GraphQLWebSockets
  readonly #http: HttpServer
  readonly #unused: { destroy(): void }
  #address: AddressInfo | undefined
  #stopped: Promise<void> | undefined

  constructor(options: ServerOptions) {
    if (!isLoopback(options.config.host)) throw new InsecureHostError(options.config.host)
    this.#options = options
    const { engine, logger } = options
    // Each open subscription listens to it.
    setMaxListeners(0, this.#closing.signal)
    const mask = createErrorMask(logger)
    this.#yoga = makeYoga({ engine, mask, closing: this.#closing.signal })
    this.#sockets = new GraphQLWebSockets({ yoga: this.#yoga, mask, logger })
    this.#http = createHttpServer((request, response) => this.#handle(request, response))
    this.#unused = followUnusedConnections(this.#http)
    this.#http.on('upgrade', (request, socket, head) => this.#upgrade(request, socket, head))
  }

  async listen(): Promise<void> {
    const { host, port } = this.#options.config
    await new Promise<void>((resolve, reject) => {
      this.#http.once('error', reject)
      this.#http.listen({ host, port }, () => {
        this.#http.off('error', reject)
        resolve()
      })
    })
    this.#address = this.#http.address() as AddressInfo
  }

  get port(): number {
    return this.#address!.port
  }

  get url(): string {
    const { address, family, port } = this.#address!
    return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop()
    return this.#stopped
  }

  async #stop(): Promise<void> {
    const stopped = new Promise<void>((resolve) => this.#http.close(() => resolve()))
    this.#unused.destroy()
    this.#closing.abort()
    const cut = setTimeout(() => {
      this.#sockets.terminate()
      this.#http.closeAllConnections()
    }, STRAGGLER_MS)
    // Connections that come to rest only now, after a last answer, would be kept for their next request.
    const sweep = setInterval(() => this.#http.closeIdleConnections(), IDLE_SWEEP_MS)
    await Promise.all([this.#sockets.close(), stopped])
    clearTimeout(cut)
    clearInterval(sweep)
    await this.#yoga.dispose()
  }

  #handle(request: IncomingMessage, response: ServerResponse): void {
    const path = pathOf(request)
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) response.setHeader(name, value)
    if (path === '/healthz') answer(response, 200, { status: 'ok' })
    else if (path === '/readyz') void this.#ready(response)
    else if (path === '/metrics') this.#figures(request, response)
    else if (path === '/') answer(response, 302, { graphql: GRAPHQL_PATH }, { location: GRAPHQL_PATH })
    else if (path !== GRAPHQL_PATH) answerError(response, 404, 'BAD_REQUEST', `There is nothing at ${path}.`)
    else if (!namesLoopback(request.headers.host)) answerError(response, 403, 'FORBIDDEN', WRONG_HOST)
    else if (this.#closing.signal.aborted) {
      answerError(response, 503, 'UNAVAILABLE', 'The server is stopping.', { connection: 'close' })
    } else void this.#graphql(request, response)
  }

  async #graphql(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      await this.#yoga(request, response)
    } catch (error) {
      // Yoga answers its own errors: this one is of the connection.
      this.#options.logger.debug({ err: error }, 'a request broke off')
      response.destroy()
    }
  }

  async #ready(response: ServerResponse): Promise<void> {
    const found = await readiness(this.#options.engine, this.#closing.signal.aborted)
    answer(response, found.ready ? 200 : 503, found)
  }

  /** For a scraper of Prometheus. As little for strangers as the API itself. */
  #figures(request: IncomingMessage, response: ServerResponse): void {
    if (!namesLoopback(request.headers.host)) answerError(response, 403, 'FORBIDDEN', WRONG_HOST)
    else void answerMetrics(this.#options.engine.metrics, response)
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const { host, origin } = request.headers
    if (pathOf(request) !== GRAPHQL_PATH) refuseUpgrade(socket, 404)
    else if (!namesLoopback(host) || !isSameOrigin(origin, host)) refuseUpgrade(socket, 403)
    else if (this.#closing.signal.aborted) refuseUpgrade(socket, 503)
    else this.#sockets.upgrade(request, socket, head)
  }
}

/** For GraphiQL's page above all: it is whole, so that it needs nothing from anywhere but this server. */
const SECURITY_HEADERS = {
  'content-security-policy':
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval' blob:; worker-src blob:; style-src 'unsafe-inline'; " +
    "font-src data:; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
}

const WRONG_HOST = 'This server answers only to the names 127.0.0.1, localhost and [::1].'

function pathOf(request: IncomingMessage): string {
  return (request.url ?? '/').split('?', 1)[0]!
}

/**
 * Starts the API's server.
 *
 * @throws {InsecureHostError} the host is one that other machines can reach, and no authentication is set up
 * @throws `EADDRINUSE` when the port is taken
 */
export async function createServer(options: ServerOptions): Promise<ApiServer> {
  const server = new Server(options)
  await server.listen()
  return server
}
