import { createEngine, type Engine } from '../../src/index.ts'
import { type ApiServer, createServer } from '../../src/server/server.ts'
import { silent } from '../api/api.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { startCuttableProxy } from './cuttable-proxy.ts'

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
  const proxy = await startCuttableProxy(() => (process === undefined ? [] : [process.server.port]))

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
    url: `http://127.0.0.1:${proxy.port}/graphql`,
    get connections() {
      return proxy.connections
    },
    cut: () => void proxy.cut(),
    down,
    up,
    serving: () => process!.engine,
    async close() {
      await proxy.close()
      await down()
      await writer.stop({ grace: 0 })
      await test.drop()
    },
  }
}
