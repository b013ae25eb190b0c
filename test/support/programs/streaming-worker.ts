import { setTimeout as sleep } from 'node:timers/promises'
import { pino } from 'pino'
import { createEngine, defineJob } from '../../../src/index.ts'

// A worker whose one job streams children: `streaming-worker.ts CONNECTION_STRING CHILDREN`. Killed in the middle.

const [connectionString, children] = process.argv.slice(2)

const leaf = defineJob({ type: 'streamed' }, { run: (ctx) => ctx.key })
const ingest = defineJob(
  { type: 'streaming' },
  {
    backoff: { initial: '10ms' },
    async ingest(ctx) {
      async function* stream() {
        for (let n = 0; n < Number(children); n++) {
          // Time to be killed in: before a chunk, and while it is written.
          if (n % 500 === 499) await sleep(100)
          yield leaf.with({}, { key: String(n) })
        }
      }
      await ctx.spawn(stream())
    },
    async aggregate(ctx) {
      const keys = new Set<string | null>()
      for await (const child of ctx.children(leaf, { states: ['completed'] })) keys.add(child.key)
      return keys.size
    },
  },
)

const engine = createEngine({
  connectionString: connectionString!,
  jobs: [leaf, ingest],
  concurrency: 100,
  heartbeat: '300ms',
  poll: '200ms',
  logger: pino({ level: 'error' }, pino.destination(2)),
})
engine.on('fatal', (error) => {
  console.error(error)
  process.exit(1)
})
await engine.start()
