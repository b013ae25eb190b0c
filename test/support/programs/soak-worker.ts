import { setTimeout as sleep } from 'node:timers/promises'
import { pino } from 'pino'
import { z } from 'zod'
import { createEngine, declareJob, defineJob } from '../../../src/index.ts'

// A worker process of the kill soak: `soak-worker.ts CONNECTION_STRING`. Killed at any moment.

/** A tree whose every job knows how many children it has to have on each level below: `[3, 2]` is 1 + 3 + 6 jobs. */
const tree = declareJob({
  type: 'soak-tree',
  payload: z.object({ fan: z.array(z.number().int()) }),
  result: z.object({ jobs: z.number() }),
})

const soakTree = defineJob(tree, {
  maxRetries: 1000,
  backoff: { initial: '10ms', cap: '50ms' },
  async ingest(ctx) {
    const [width = 0, ...below] = ctx.payload.fan
    await sleep(Math.random() * 8)
    await ctx.spawn(Array.from({ length: width }, () => tree.with({ fan: below })))
    await sleep(Math.random() * 4)
  },
  async aggregate(ctx) {
    let jobs = 1
    let children = 0
    await sleep(Math.random() * 8)
    for await (const child of ctx.children(tree)) {
      children++
      if (child.state !== 'completed') throw new Error(`child ${child.id} is ${child.state}`)
      jobs += child.result.jobs
    }
    const wanted = ctx.payload.fan[0] ?? 0
    if (children !== wanted) throw new Error(`${children} children instead of ${wanted}`)
    return { jobs }
  },
})

const engine = createEngine({
  connectionString: process.argv[2]!,
  jobs: [soakTree],
  concurrency: 20,
  heartbeat: '300ms',
  poll: '200ms',
  logger: pino({ level: 'error' }, pino.destination(2)),
})
engine.on('fatal', (error) => {
  console.error(error)
  process.exit(1)
})
await engine.start()
process.stdout.write('ready\n')
