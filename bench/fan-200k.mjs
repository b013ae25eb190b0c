import { fork } from 'node:child_process'
import { once } from 'node:events'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { pino } from 'pino'
import { createEngine, declareJob, defineJob } from '../dist/index.js'
import { now, round, untilNone } from './measure.mjs'
import { startServers } from './servers.mjs'

// npm run fan-200k: the memory of a worker's process while one parent spawns 200,000 children as a stream, runs them
// all, and reads them back in its aggregate. `--list` hands them to spawn as one array instead.

const MB = 1024 * 1024
const TARGET_MB = 250

const fan = declareJob({ type: 'fan' })
const leaf = declareJob({ type: 'leaf' })

function* leaves(children) {
  for (let index = 0; index < children; index++) yield leaf.with({ index }, { key: `${index}` })
}

/** The worker's process: works until it is told to stop, and then says how large it grew. */
async function work({ connectionString, children, list, concurrency }) {
  const at = []
  const note = (when) => at.push({ when, rssMb: round(process.memoryUsage.rss() / MB) })
  const jobs = [
    defineJob(leaf, { async run() {} }),
    defineJob(fan, {
      async ingest(ctx) {
        note('before spawn')
        await ctx.spawn(list ? [...leaves(children)] : leaves(children))
        note('after spawn')
      },
      async aggregate(ctx) {
        note('before aggregate')
        let seen = 0
        for await (const _ of ctx.children()) seen++
        if (seen !== children) throw new Error(`The aggregate saw ${seen} children of ${children}`)
        note('after aggregate')
      },
    }),
  ]
  const logger = pino({ level: 'warn' }, pino.destination({ fd: 2 }))
  const engine = createEngine({ connectionString, logger, jobs, concurrency, migrate: false })
  await engine.start()
  process.send('ready')
  await once(process, 'message')
  await engine.stop()
  // In kilobytes, from the operating system: the highest it ever was.
  process.send({ at, peakMb: round(process.resourceUsage().maxRSS / 1024) })
  process.disconnect()
}

async function main() {
  const { values } = parseArgs({
    options: {
      children: { type: 'string', default: '200000' },
      concurrency: { type: 'string', default: '1000' },
      list: { type: 'boolean', default: false },
    },
  })
  const children = Number(values.children)
  const servers = await startServers({ redis: false })
  let worker
  try {
    const connectionString = await servers.freshDatabase()
    const client = createEngine({ connectionString, logger: pino({ level: 'warn' }) })
    await client.start()
    const task = { connectionString, children, list: values.list, concurrency: Number(values.concurrency) }
    worker = fork(import.meta.filename, ['--worker', JSON.stringify(task)])
    await once(worker, 'message')
    const started = now()
    const parent = await client.enqueue(fan.with({}))
    const end = await client.waitFor(parent)
    const seconds = round((now() - started) / 1000, 1)
    if (end.state !== 'completed') throw new Error(`The parent ended as ${end.state}: ${end.error ?? ''}`)
    const pool = new pg.Pool({ connectionString, max: 1 })
    await untilNone(pool, `select count(*) from coppice.job where state <> 'completed'`)
    await pool.end()
    await client.stop()
    const told = once(worker, 'message')
    worker.send('stop')
    const [{ at, peakMb }] = await told
    const met = peakMb < TARGET_MB
    console.log(JSON.stringify({ children, list: values.list, seconds, at, peakMb, targetMb: TARGET_MB, met }))
  } finally {
    if (worker?.connected) worker.kill()
    await servers.stop()
  }
}

if (process.argv[2] === '--worker') await work(JSON.parse(process.argv[3]))
else await main()
