import pg from 'pg'
import { pino } from 'pino'
import { createEngine, declareJob, defineJob } from '../../dist/index.js'
import { untilNone } from '../measure.mjs'

const flat = declareJob({ type: 'flat' })
const child = declareJob({ type: 'child' })
const parent = declareJob({ type: 'parent' })

// Each of these states has an index of its own: looking costs next to nothing.
const ANY_ACTIVE = `select
  exists (select from coppice.job where state = 'queued' and archived_at is null)
  or exists (select from coppice.job where state = 'running')
  or exists (select from coppice.job where state = 'waiting')`

/** Two-phase jobs: parents are enqueued alone and spawn their children when they run. */
export async function open({ postgres }, { concurrency }, handlers) {
  const pool = new pg.Pool({ connectionString: postgres, max: 1 })
  const logger = pino({ level: 'warn' }, pino.destination({ fd: 2 }))
  const jobs = [
    defineJob(flat, {
      async run() {
        handlers.flat()
      },
    }),
    defineJob(child, {
      async run() {
        handlers.child()
      },
    }),
    defineJob(parent, {
      async ingest(ctx) {
        const { number, children } = ctx.payload
        await ctx.spawn(Array.from({ length: children }, (_, index) => child.with({ number, index })))
      },
      async aggregate() {
        handlers.parent()
      },
    }),
  ]
  // As other programs do: one that only enqueues, and one that works. The first brings the schema up to date.
  const client = createEngine({ connectionString: postgres, logger })
  await client.start()
  const worker = createEngine({ connectionString: postgres, logger, jobs, concurrency, migrate: false })
  return {
    addFlat: (numbers) => client.enqueueMany(numbers.map((number) => flat.with({ number }))),
    addTrees: (numbers, children) => client.enqueueMany(numbers.map((number) => parent.with({ number, children }))),
    work: () => worker.start(),
    committed: () => untilNone(pool, ANY_ACTIVE),
    async close() {
      await worker.stop()
      await client.stop()
      await pool.end()
    },
  }
}
