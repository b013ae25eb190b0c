import { type Logger, pino } from 'pino'
import { createEngine, type Engine, type EngineOptions } from '../../src/index.ts'
import { type ApiServer, createServer, type ServerOptions } from '../../src/server/server.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { RawSocket } from './raw-socket.ts'
import { SseStream } from './sse-stream.ts'

/** The answer to an operation over HTTP. */
export interface Answer {
  status: number
  // biome-ignore lint/suspicious/noExplicitAny: a test knows what it asked for.
  data: any
  errors?: { message: string; path?: (string | number)[]; extensions: { code: string; errorId?: string } }[]
}

/** A server on a database of its own, and clients for it. */
export interface Api {
  test: TestDatabase
  engine: Engine
  server: ApiServer
  /** Lines that the server logged. */
  log: Record<string, unknown>[]
  /** POST of JSON, as curl would send it; with a key or a token, if one is given. */
  run(query: string, variables?: Record<string, unknown>, token?: string): Promise<Answer>
  /** The data of an operation that has no errors. */
  // biome-ignore lint/suspicious/noExplicitAny: a test knows what it asked for.
  ask(query: string, variables?: Record<string, unknown>): Promise<any>
  /** A socket that speaks graphql-transport-ws frame by frame, acknowledged. */
  socket(): Promise<RawSocket>
  /** A subscription over SSE. */
  stream(query: string, variables?: Record<string, unknown>): Promise<SseStream>
  stop(): Promise<void>
}

/**
 * Starts the API on a fresh database; the engine runs no jobs unless it is given some. Without `start` it does no
 * maintenance either.
 */
export async function startApi({
  start = true,
  serving = {},
  ...options
}: Partial<EngineOptions> & { start?: boolean; serving?: Partial<ServerOptions> } = {}): Promise<Api> {
  const test = await createTestDatabase()
  const log: Record<string, unknown>[] = []
  const logger = pino({ level: 'warn' }, { write: (line: string) => log.push(JSON.parse(line)) })
  const engine = createEngine({
    connectionString: test.connectionString,
    schema: test.schema,
    logger,
    ...options,
  })
  if (start) await engine.start()
  const server = await createServer({ engine, config: { host: '127.0.0.1', port: 0 }, logger, ...serving })
  const url = `${server.url}/graphql`
  const open: { close(): void }[] = []

  async function run(query: string, variables: Record<string, unknown> = {}, token?: string): Promise<Answer> {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(token !== undefined && { authorization: `Bearer ${token}` }) },
      body: JSON.stringify({ query, variables }),
    })
    return { status: response.status, ...((await response.json()) as Omit<Answer, 'status'>) }
  }

  return {
    test,
    engine,
    server,
    log,
    run,
    async ask(query, variables) {
      const answer = await run(query, variables)
      if (answer.errors) throw new Error(JSON.stringify([answer.errors, log], null, 2))
      return answer.data
    },
    async socket() {
      const socket = await RawSocket.open(url.replace('http:', 'ws:'))
      open.push(socket)
      await socket.init()
      return socket
    },
    async stream(query, variables) {
      const stream = await SseStream.open(url, query, variables)
      open.push(stream)
      return stream
    },
    async stop() {
      for (const client of open) client.close()
      await server.stop()
      await engine.stop({ grace: 0 })
      await test.drop()
    },
  }
}

/** A logger of which nothing is seen. */
export function silent(): Logger {
  return pino({ level: 'silent' })
}
