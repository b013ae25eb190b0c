import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { Command } from 'commander'
import { pino } from 'pino'
import { removeEmbeddedData } from '../src/db/embedded/remove.ts'
import { startEmbeddedServer } from '../src/db/embedded/server.ts'
import { createEngine } from '../src/engine/create-engine.ts'
import { createServer } from '../src/server/server.ts'
import { runFuzz } from '../test/api/fuzz/run-fuzz.ts'
import { until } from '../test/support/until.ts'

// npm run fuzz -- --requests 10000 --seed 7: sends hostile and malformed requests to a server of its own, and prints what
// came back. Fails at any 5xx, any fault of ours, any leak of internals, and memory that grows.

const { requests, seed } = new Command()
  .option('--requests <n>', 'how many requests; one in four is a whole socket', Number, 10_000)
  .option('--seed <n>', 'which requests: the same again for the same number', Number, Date.now() % 1_000_000)
  .parse()
  .opts<{ requests: number; seed: number }>()

/** What the heap may grow by between a third of the way and the end: caches fill, answers wait for the collector. */
const MAX_GROWTH_MB = 10

const folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-fuzz-'))
const database = await startEmbeddedServer({ dataDir: folder, durable: false })
let faultsLogged = 0
const logger = pino(
  { level: 'error' },
  {
    write(line: string) {
      faultsLogged++
      process.stderr.write(line)
    },
  },
)
const engine = createEngine({ connectionString: database.connectionString, logger })
try {
  await engine.start()
  const server = await createServer({ engine, config: { host: '127.0.0.1', port: 0 }, logger })
  const tree = {
    type: 'root',
    children: [
      { type: 'leaf', payload: { a: 1 } },
      { type: 'leaf', children: [] },
    ],
  }
  const handles = await engine.enqueueMany([tree, tree, { type: 'single' }, { type: 'single', key: 'k' }])
  const ids = handles.flatMap(({ id }) => [id, `JB_${id}`])
  const report = await runFuzz({ url: server.url, requests, seed, ids, log: console.log })
  // What clients left behind is to be freed at once, not only when the server stops.
  await until(() => engine.feed.stats().subscribers === 0, { timeout: 5000 }).catch(() => {})
  const subscribersLeft = engine.feed.stats().subscribers
  const answers = await fetch(`${server.url}/healthz`).then(({ status }) => status === 200)
  await server.stop()
  const [third, end] = report.heapMb
  console.log(JSON.stringify({ ...report, faults: report.faults.slice(0, 20), faultsLogged, subscribersLeft }, null, 2))
  const failed = report.faults.length > 0 || faultsLogged > 0 || subscribersLeft > 0 || !answers
  if (failed || end - third > MAX_GROWTH_MB) process.exitCode = 1
} finally {
  await engine.stop({ grace: 0 })
  await database.stop()
  await removeEmbeddedData(folder)
  await rm(folder, { recursive: true, force: true })
}
