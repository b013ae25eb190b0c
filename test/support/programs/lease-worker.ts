import { setTimeout as sleep } from 'node:timers/promises'
import { pino } from 'pino'
import { z } from 'zod'
import { createEngine, declareJob, defineJob } from '../../../src/index.ts'

// A worker process for tests of leases: `lease-worker.ts CONNECTION_STRING NAME`. It prints a line of JSON for what it
// logs, when it is ready, and when a handler starts. Its jobs do what their payload says for this worker's name.

const [, , connectionString, name] = process.argv as [string, string, string, string]
const say = (message: unknown) => process.stdout.write(`${JSON.stringify(message)}\n`)

const task = declareJob({
  type: 'task',
  // `hang` and `block` name the workers in which the handler sleeps, or blocks the event loop, for `ms`.
  payload: z.object({
    hang: z.string().optional(),
    block: z.string().optional(),
    ms: z.number().default(0),
  }),
  result: z.object({ by: z.string() }),
})

const taskJob = defineJob(task, {
  backoff: { initial: '10ms', cap: '50ms' },
  async run(ctx) {
    say({ started: ctx.id, attempt: ctx.attempt })
    const { hang, block, ms } = ctx.payload
    if (hang === name) await sleep(ms)
    if (block === name) {
      const end = performance.now() + ms
      while (performance.now() < end);
    }
    return { by: name }
  },
})

const collect = defineJob(
  { type: 'collect', result: z.object({ by: z.string(), children: z.array(z.string()) }) },
  {
    async ingest() {},
    async aggregate(ctx) {
      const children: string[] = []
      for await (const child of ctx.children()) {
        children.push(child.state === 'failed' ? `failed ${child.error.code}` : child.state)
      }
      return { by: name, children }
    },
  },
)

const engine = createEngine({
  connectionString,
  jobs: [taskJob, collect],
  concurrency: 50,
  heartbeat: '300ms',
  poll: '200ms',
  migrate: false,
  logger: pino({ level: 'info' }, { write: (line: string) => say({ log: JSON.parse(line) }) }),
})
engine.on('fatal', () => process.exit(1))
await engine.start()
say({ ready: true })
process.stdin.resume().on('end', async () => {
  await engine.stop()
  process.exit(0)
})
