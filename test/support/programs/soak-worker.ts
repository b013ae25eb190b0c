import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { pino } from 'pino'
import { z } from 'zod'
import { createEngine, declareJob, defineJob, PermanentError } from '../../../src/index.ts'
import type { Plan } from '../../fault/soak-plans.ts'

// A worker process of the soak: `soak-worker.ts CONNECTION_STRING`. It says when it is loaded, works once it is told
// to, and says so. Killed at any moment, and its server too.

const tree = declareJob({
  type: 'soak-tree',
  payload: z.custom<Plan>(),
  result: z.object({ jobs: z.number() }),
})

const childOf = (plan: Plan) =>
  tree.with(plan, {
    ...(plan.failsParent && { onChildFailure: 'fail_parent' }),
    ...(plan.keeps && { orphanPolicy: 'keep' }),
  })

const soakTree = defineJob(tree, {
  maxRetries: 1000,
  backoff: { initial: '10ms', cap: '50ms' },
  async ingest(ctx) {
    const { waves, fails } = ctx.payload
    await sleep(Math.random() * 8)
    const [first] = waves
    if (first) {
      await ctx.spawn(first.map(childOf))
      await sleep(Math.random() * 4)
      return
    }
    if (fails) throw new PermanentError('as planned')
    return { jobs: 1 }
  },
  async aggregate(ctx) {
    const { waves, fails } = ctx.payload
    await sleep(Math.random() * 8)
    const { total, open } = await ctx.childCounts()
    const planned = waves[ctx.wave - 1]?.length
    if (total !== planned || open > 0)
      throw new PermanentError(`${total} children (${open} open) instead of ${planned}`)
    const next = waves[ctx.wave]
    if (next) {
      await ctx.spawn(next.map(childOf))
      return
    }
    if (fails) throw new PermanentError('as planned')
    let jobs = 1
    for await (const child of ctx.children(tree, { wave: 'all', states: ['completed'] })) jobs += child.result.jobs
    return { jobs }
  },
})

const engine = createEngine({
  connectionString: process.argv[2]!,
  jobs: [soakTree],
  migrate: false,
  concurrency: 20,
  poolSize: 4,
  heartbeat: '300ms',
  poll: '200ms',
  // A server that goes is part of the game; what cannot be borne comes by `fatal`.
  logger: pino({ level: 'fatal' }, pino.destination(2)),
})
engine.on('fatal', (error) => {
  console.error(error)
  process.exit(1)
})
// It does not outlive whoever started it.
process.stdin.on('end', () => process.exit(1))
process.stdout.write('loaded\n')
await once(process.stdin, 'data')
for (let started = false; !started; ) {
  started = await engine.start().then(
    () => true,
    async (error) => {
      if (error.code !== 'UNAVAILABLE') throw error
      await sleep(50)
      return false
    },
  )
}
process.stdout.write('ready\n')
