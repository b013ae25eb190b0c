import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { Command } from 'commander'
import pg from 'pg'
import { pino } from 'pino'
import { removeEmbeddedData } from '../src/db/embedded/remove.ts'
import { startEmbeddedServer } from '../src/db/embedded/server.ts'
import { createEngine, declareJob, defineJob } from '../src/index.ts'

// npm run figures: jobs a second for flat jobs and for one wide fan-out, on a durable server of its own, in one run. A
// round is over when the last end has been committed, not when the last handler returned.

const options = new Command()
  .option('--jobs <n>', 'flat jobs, and children of the one parent', Number, 20_000)
  .option('--concurrency <n>', 'handlers at once', Number, 1000)
  .option('--rounds <n>', 'how often each is measured; the median counts', Number, 3)
  .parse()
  .opts<{ jobs: number; concurrency: number; rounds: number }>()

const noop = declareJob({ type: 'noop' })
const fan = declareJob({ type: 'fan' })
const jobs = [
  defineJob(noop, { async run() {} }),
  defineJob(fan, {
    async ingest(ctx) {
      await ctx.spawn(Array.from({ length: options.jobs }, () => noop.with({})))
    },
    async aggregate() {},
  }),
]

const folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-figures-'))
const server = await startEmbeddedServer({ dataDir: folder, durable: true })
const { connectionString } = server
const pool = new pg.Pool({ connectionString, max: 1 })
const logger = pino({ level: 'warn' })
const quiet = { connectionString, logger }

// Each state has its partial index: looking costs next to nothing.
const ANY_ACTIVE = `select
  exists (select from coppice.job where state = 'queued' and archived_at is null)
  or exists (select from coppice.job where state = 'running')
  or exists (select from coppice.job where state = 'waiting') as active`

/** Seconds from `begin` until nothing is active. */
async function timed(begin: () => Promise<unknown>): Promise<number> {
  await pool.query('checkpoint')
  const engine = createEngine({ ...quiet, jobs, concurrency: options.concurrency })
  const started = performance.now()
  await begin()
  await engine.start()
  while ((await pool.query(ANY_ACTIVE)).rows[0].active) await new Promise((resolve) => setTimeout(resolve, 5))
  const seconds = (performance.now() - started) / 1000
  await engine.stop()
  return seconds
}

const median = (values: number[]) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!
const figures: Record<string, number[]> = { 'bulk enqueue': [], flat: [], 'one parent': [] }
try {
  const client = createEngine(quiet)
  for (let round = 0; round < options.rounds; round++) {
    const setUp = createEngine({ ...quiet, jobs: [] })
    await pool.query('drop schema if exists coppice cascade')
    await setUp.start()
    await setUp.stop()
    const started = performance.now()
    for (let n = 0; n < options.jobs; n += 1000) {
      await client.enqueueMany(Array.from({ length: Math.min(1000, options.jobs - n) }, () => noop.with({})))
    }
    figures['bulk enqueue']!.push(options.jobs / ((performance.now() - started) / 1000))
    figures.flat!.push(options.jobs / (await timed(async () => {})))
    figures['one parent']!.push((options.jobs + 1) / (await timed(() => client.enqueue(fan.with({})))))
  }
  await client.stop()
  for (const [name, values] of Object.entries(figures)) {
    const rounded = values.map(Math.round)
    console.log(`${name.padEnd(14)} ${median(rounded).toString().padStart(7)} jobs/s   (${rounded.join(', ')})`)
  }
} finally {
  await pool.end()
  await server.stop()
  await removeEmbeddedData(folder)
  await rm(folder, { recursive: true, force: true })
}
