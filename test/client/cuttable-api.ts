import net from 'node:net'
import { createEngine, type Engine } from '../../src/index.ts'
import { type ApiServer, createServer } from '../../src/server/server.ts'
import { silent } from '../api/api.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

/** The API behind a port that stays, while connections are cut and processes come and go. */
export interface CuttableApi {
  readonly test: TestDatabase
  /** Writes; it serves nothing and stays. */
  readonly writer: Engine
  /** The address that clients know. */
  readonly url: string
  /** Connections taken so far. */
  readonly connections: number
  /** Cuts every connection, as when a network fails. */
  cut(): void
  /** Stops the server and its engine as a deployment does; nothing answers until `up`. */
  down(): Promise<void>
  up(): Promise<void>
  /** The serving engine. */
  serving(): Engine
  close(): Promise<void>
}

export async function startCuttableApi(): Promise<CuttableApi> {
  const test = await createTestDatabase()
  const settings = { connectionString: test.connectionString, schema: test.schema, worker: false, logger: silent() }
  const writer = createEngine(settings)
  await writer.start()
  let process: { engine: Engine; server: ApiServer } | undefined
  let connections = 0
  const sockets = new Set<net.Socket>()
  const proxy = net.createServer((client) => {
    connections++
    if (process === undefined) {
      client.destroy()
      return
    }
    const upstream = net.connect(process.server.port, '127.0.0.1')
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(one)
      one.on('error', () => {})
      one.on('close', () => {
        sockets.delete(one)
        other.destroySoon()
      })
      one.pipe(other)
    }
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  const { port } = proxy.address() as net.AddressInfo

  async function up() {
    const engine = createEngine(settings)
    await engine.start()
    const server = await createServer({ engine, config: { host: '127.0.0.1', port: 0 }, logger: silent() })
    process = { engine, server }
  }

  async function down() {
    const stopping = process
    // What comes from now on finds nobody; what is there is served to its end.
    process = undefined
    await stopping?.server.stop()
    await stopping?.engine.stop({ grace: 0 })
  }

  await up()
  return {
    test,
    writer,
    url: `http://127.0.0.1:${port}/graphql`,
    get connections() {
      return connections
    },
    cut() {
      for (const socket of sockets) socket.destroy()
    },
    down,
    up,
    serving: () => process!.engine,
    async close() {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => proxy.close(resolve))
      await down()
      await writer.stop({ grace: 0 })
      await test.drop()
    },
  }
}
