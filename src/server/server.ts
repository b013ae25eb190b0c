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
import { ForbiddenError, includesRole, UnauthenticatedError } from '../resolvers/viewer.ts'
import type { ErrorCodeName } from '../schema/enums.ts'
import { type Authenticator, type AuthOptions, bearerOf, createAuthenticator } from './auth/authenticator.ts'
import { atExpiry, type Session } from './auth/session.ts'
import type { Caller } from './caller.ts'
import { type Connections, followConnections } from './connections.ts'
import { createErrorMask, type ErrorMask } from './error-mask.ts'
import { readiness } from './health.ts'
import { HttpLoad } from './http-load.ts'
import { DEFAULT_LIMITS, LimitExceededError, type Limits } from './limits.ts'
import { InsecureHostError, isLoopback, isSameOrigin, namesLoopback } from './loopback.ts'
import { answerMetrics } from './metrics.ts'
import { answer, answerError, refuseUpgrade } from './plain-answer.ts'
import { countRefusals, type RefusalReason } from './refusals.ts'
import { GraphQLWebSockets } from './websocket.ts'
import { GRAPHQL_PATH, makeYoga, type Yoga } from './yoga.ts'

/** What a server is made of. */
export interface ServerOptions {
  engine: ApiEngine
  /** Port 0 takes a free one. */
  config: { host: string; port: number }
  /** How callers are known; without it anybody may do anything, from this machine only. */
  auth?: AuthOptions
  /** What differs from the usual limits. */
  limits?: Partial<Limits>
  /** Origins of web pages elsewhere that may use the API, such as `https://app.example.com`. */
  corsOrigins?: readonly string[] | undefined
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
/** Longest time between two looks at requests that do not arrive, in milliseconds. */
const MAX_CHECK_MS = 5000

/** The API on one port: GraphQL over HTTP, SSE and WebSocket, GraphiQL, health, readiness and figures. */
class Server implements ApiServer {
  readonly #options: ServerOptions
  readonly #authenticator: Authenticator
  readonly #mask: ErrorMask
  readonly #refused: (reason: RefusalReason) => void
  readonly #corsOrigins: readonly string[]
  readonly #load: HttpLoad
  readonly #closing = new AbortController()
  readonly #yoga: Yoga
  readonly #sockets: GraphQLWebSockets
  readonly #http: HttpServer
  readonly #connections: Connections
  #address: AddressInfo | undefined
  #stopped: Promise<void> | undefined

  constructor(options: ServerOptions) {
    this.#options = options
    const { engine, logger, config, auth = {}, corsOrigins = [] } = options
    this.#authenticator = createAuthenticator(auth)
    if (!this.#authenticator.required && !isLoopback(config.host)) throw new InsecureHostError(config.host)
    const limits = { ...DEFAULT_LIMITS, ...options.limits }
    this.#corsOrigins = corsOrigins
    this.#refused = countRefusals(engine.metrics)
    this.#load = new HttpLoad(limits.maxOperations)
    // Each open subscription listens to it.
    setMaxListeners(0, this.#closing.signal)
    const mask = createErrorMask(logger, this.#refused)
    this.#mask = mask
    const authRequired = this.#authenticator.required
    this.#yoga = makeYoga({ engine, mask, limits, corsOrigins, authRequired, closing: this.#closing.signal })
    this.#sockets = new GraphQLWebSockets({
      yoga: this.#yoga,
      authenticator: this.#authenticator,
      limits,
      mask,
      logger,
    })
    this.#http = createHttpServer(
      {
        requestTimeout: limits.requestTimeoutMs,
        headersTimeout: limits.requestTimeoutMs,
        connectionsCheckingInterval: Math.min(limits.requestTimeoutMs, MAX_CHECK_MS),
      },
      (request, response) => this.#handle(request, response),
    )
    this.#http.maxConnections = limits.maxConnections
    this.#http.on('drop', () => this.#refused('connections'))
    this.#connections = followConnections(this.#http)
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
    this.#connections.destroyUnused()
    this.#closing.abort()
    const cut = setTimeout(() => {
      this.#sockets.terminate()
      this.#connections.destroyAll()
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
    else if (path === '/metrics') void this.#figures(request, response)
    else if (path === '/') answer(response, 302, { graphql: GRAPHQL_PATH }, { location: GRAPHQL_PATH })
    else if (path !== GRAPHQL_PATH) answerError(response, 404, 'BAD_REQUEST', `There is nothing at ${path}.`)
    else if (!this.#isNamed(request)) this.#answerWrongHost(response)
    else if (!this.#load.admit(request, response)) this.#answerMasked(response, TOO_MANY)
    else if (this.#closing.signal.aborted) {
      answerError(response, 503, 'UNAVAILABLE', 'The server is stopping.', { connection: 'close' })
    } else void this.#graphql(request, response)
  }

  async #graphql(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const expired = new AbortController()
    const caller: Caller = {
      expired: expired.signal,
      authenticate: async () => {
        const session = await this.#authenticate(request)
        response.once(
          'close',
          atExpiry(session, () => expired.abort(new UnauthenticatedError('The token has expired.'))),
        )
        return session
      },
    }
    try {
      await this.#yoga(request, response, caller)
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
  async #figures(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (!this.#isNamed(request)) return this.#answerWrongHost(response)
    try {
      const { viewer } = await this.#authenticate(request)
      if (!includesRole(viewer, 'viewer')) throw new ForbiddenError('viewer')
      await answerMetrics(this.#options.engine.metrics, response)
    } catch (error) {
      this.#answerMasked(response, error)
    }
  }

  #authenticate({ headers }: IncomingMessage): Promise<Session> {
    return this.#authenticator.authenticate(bearerOf(headers.authorization))
  }

  /** Whether a request may have come here by this name: whoever shows a key has not been led here by a page. */
  #isNamed({ headers }: IncomingMessage): boolean {
    return this.#authenticator.required || namesLoopback(headers.host)
  }

  #answerWrongHost(response: ServerResponse): void {
    this.#refused('host')
    answerError(response, 403, 'FORBIDDEN', WRONG_HOST)
  }

  #answerMasked(response: ServerResponse, error: unknown): void {
    const { message, extensions } = this.#mask(error)
    const { status, headers } = extensions.http as { status: number; headers: Record<string, string> }
    answerError(response, status, extensions.code as ErrorCodeName, message, headers)
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const { host, origin } = request.headers
    if (pathOf(request) !== GRAPHQL_PATH) refuseUpgrade(socket, 404)
    else if (!this.#isNamed(request)) this.#refuseUpgrade(socket, 'host')
    else if (!this.#isOrigin(origin, host)) this.#refuseUpgrade(socket, 'origin')
    else if (this.#closing.signal.aborted) refuseUpgrade(socket, 503)
    else this.#sockets.upgrade(request, socket, head)
  }

  #refuseUpgrade(socket: Duplex, reason: 'host' | 'origin'): void {
    this.#refused(reason)
    refuseUpgrade(socket, 403)
  }

  #isOrigin(origin: string | undefined, host: string | undefined): boolean {
    return isSameOrigin(origin, host) || this.#corsOrigins.includes(origin!.toLowerCase())
  }
}

const TOO_MANY = new LimitExceededError('operations', 'Too many requests are under way on this connection.')

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
