import { z } from 'zod'
import { createEngine, declareJob, defineJob } from '../src/index.ts'

// A contract is enough to enqueue, to spawn and to read results by: another process may implement it.
const square = declareJob({ type: 'square', payload: z.object({ of: z.number() }), result: z.number() })
const sumOfSquares = declareJob({ type: 'sum-of-squares', payload: z.object({ upTo: z.number() }), result: z.number() })

const squareJob = defineJob(square, {
  async run(ctx) {
    return ctx.payload.of ** 2
  },
})

const sumOfSquaresJob = defineJob(sumOfSquares, {
  // Phase one. The children are written together with its end: all of them or none.
  async ingest(ctx) {
    const numbers = Array.from({ length: ctx.payload.upTo }, (_, index) => index + 1)
    await ctx.spawn(numbers.map((of) => square.with({ of }, { key: String(of) })))
  },
  // Phase two, once the last of them has ended. Meanwhile the job has held no slot.
  async aggregate(ctx) {
    let sum = 0
    for await (const child of ctx.children(square)) {
      if (child.state !== 'completed') throw new Error(`There is no square of ${child.key}`)
      sum += child.result
    }
    return sum
  },
})

const connectionString = process.env.DATABASE_URL ?? ''
const engine = createEngine({ connectionString, jobs: [squareJob, sumOfSquaresJob] })
await engine.start()
const handle = await engine.enqueue(sumOfSquares.with({ upTo: 10 }))
const end = await engine.waitFor(handle, { timeoutMs: 60_000 })
console.log(end.state === 'completed' ? end.result : end)
await engine.stop()
