import { pino } from 'pino'
import { z } from 'zod'
import { createEngine, declareJob, defineJob, type Engine } from '../../../src/index.ts'

// Writers for the proof that subscribers lose nothing: `lossless-writers.ts CONNECTION_STRING WRITERS ROOT…`. Each is an
// engine that enqueues trees, runs them, steers others, and changes the trees of the given roots; all that it has begun
// is at its end, or at rest, when it stops. Says `ready`; stops when its input ends.

const [, , connectionString, count, ...roots] = process.argv as [string, string, string, string, ...string[]]

const leaf = defineJob({ type: 'leaf' }, { run: () => null })
const parent = declareJob({ type: 'parent', payload: z.object({ children: z.number() }) })
const parentJob = defineJob(parent, {
  async ingest(ctx) {
    await ctx.spawn(Array.from({ length: ctx.payload.children }, () => leaf.with({})))
  },
  async aggregate() {},
})

/** Nobody runs these: they move as they are steered. */
const steered = (children = 0) => ({
  type: 'steered',
  children: Array.from({ length: children }, () => ({ type: 'steered' })),
})

const random = (below: number) => Math.floor(Math.random() * below)
let going = true

async function steer(engine: Engine): Promise<void> {
  const { id } = await engine.enqueue(steered(3))
  await engine.pauseJob(id, { descendants: true })
  await engine.resumeJob(id, { descendants: true })
  await (Math.random() < 0.5 ? engine.cancelJob(id) : engine.deleteJob(id))
}

/** Adds children to a tree that somebody watches; takes one away, or ends it. */
async function change(engine: Engine, root: string): Promise<void> {
  const { children } = await engine.spawnChildren(root, [leaf.with({}), steered(1), steered()])
  const [, tree, single] = children
  await engine.cancelJob(tree!.id)
  if (Math.random() < 0.5) await engine.deleteJob(single!.id)
  else await engine.pauseJob(single!.id)
}

async function write(engine: Engine): Promise<void> {
  while (going) {
    const jobs = Array.from({ length: 4 }, () => parent.with({ children: 1 + random(6) }))
    const handles = await engine.enqueueMany(jobs)
    await steer(engine)
    if (roots.length > 0) await change(engine, roots[random(roots.length)]!)
    await Promise.all(handles.map((handle) => engine.waitFor(handle)))
  }
}

const engines = Array.from({ length: Number(count) }, () => {
  const engine = createEngine({
    connectionString,
    jobs: [leaf, parentJob],
    concurrency: 20,
    poll: '200ms',
    poolSize: 4,
    migrate: false,
    logger: pino({ level: 'error' }, pino.destination(2)),
  })
  engine.on('fatal', (error) => {
    console.error(error)
    process.exit(1)
  })
  return engine
})
await Promise.all(engines.map((engine) => engine.start()))
process.stdin.resume().on('end', () => {
  going = false
})
process.stdout.write('ready\n')
await Promise.all(engines.map(write))
await Promise.all(engines.map((engine) => engine.stop()))
process.exit(0)
