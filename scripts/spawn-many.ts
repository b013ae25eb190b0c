import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { pino } from 'pino'
import { z } from 'zod'
import { removeEmbeddedData } from '../src/db/embedded/remove.ts'
import { startEmbeddedServer } from '../src/db/embedded/server.ts'
import { createEngine, defineJob } from '../src/index.ts'

// One parent that streams a large number of children, runs them and reads them all: how fast, and in how much memory of
// this process, which is spawner, worker and aggregator at once. `spawn-many.ts [CHILDREN]`, 200,000 unless told.

const CHILDREN = Number(process.argv[2] ?? 200_000)
/** Of the process, with everything. */
const LIMIT_MB = 250

const megabytes = (bytes: number) => Math.round(bytes / 1024 / 1024)
const seconds = (since: number) => ((performance.now() - since) / 1000).toFixed(1)

const leaf = defineJob(
  { type: 'leaf', payload: z.object({ n: z.number() }), result: z.number() },
  { run: ({ payload }) => payload.n },
)
const parent = defineJob(
  { type: 'parent', result: z.object({ children: z.number(), sum: z.number() }) },
  {
    async ingest(ctx) {
      const start = performance.now()
      function* children() {
        for (let n = 0; n < CHILDREN; n++) yield leaf.with({ n }, { key: String(n) })
      }
      const { created } = await ctx.spawn(children())
      console.log(`${created} children streamed in ${seconds(start)} s`)
    },
    async aggregate(ctx) {
      const start = performance.now()
      let children = 0
      let sum = 0
      for await (const child of ctx.children(leaf, { states: ['completed'] })) {
        children++
        sum += child.result
      }
      console.log(`${children} children read in ${seconds(start)} s`)
      return { children, sum }
    },
  },
)

const folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-many-'))
const server = await startEmbeddedServer({ dataDir: folder })
const engine = createEngine({
  connectionString: server.connectionString,
  jobs: [leaf, parent],
  concurrency: 500,
  logger: pino({ level: 'warn' }, pino.destination(2)),
})
try {
  const before = megabytes(process.memoryUsage.rss())
  await engine.start()
  const start = performance.now()
  const end = await engine.waitFor(await engine.enqueue(parent.with()))
  // In kibibytes.
  const peak = Math.round(process.resourceUsage().maxRSS / 1024)
  console.log(`${JSON.stringify(end)} in ${seconds(start)} s`)
  console.log(`memory: ${before} MB before, ${peak} MB at most`)
  const wanted = (CHILDREN * (CHILDREN - 1)) / 2
  const right = end.state === 'completed' && end.result.children === CHILDREN && end.result.sum === wanted
  if (!right || peak >= LIMIT_MB) process.exitCode = 1
} finally {
  await engine.stop()
  await server.stop()
  await removeEmbeddedData(folder)
  await rm(folder, { recursive: true, force: true })
}
