import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { declareJob, defineJob, type JobContext, PermanentError } from '../../src/index.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()
const { engineWith } = engines

const fastRetries = { backoff: { initial: 1, cap: 5 } }
describe('more than two phases, and whole trees', () => {
  const leaf = declareJob({ type: named('leaf'), payload: z.object({ n: z.number() }), result: z.number() })
  const leafJob = defineJob(leaf, {
    ...fastRetries,
    run({ payload }) {
      if (payload.n < 0) throw new PermanentError('negative')
      return payload.n
    },
  })

  test('it may spawn again: another wave each time', async () => {
    const stages = defineJob(
      { type: named('stages') },
      {
        ingest: (ctx) => ctx.spawn([leaf.with({ n: 0 })]),
        async aggregate(ctx) {
          if (ctx.wave < 3) return ctx.spawn([leaf.with({ n: ctx.wave }), leaf.with({ n: ctx.wave })])
          const last: unknown[] = []
          for await (const child of ctx.children(leaf, { states: ['completed'] })) last.push(child.result)
          const all: unknown[] = []
          for await (const child of ctx.children(leaf, { wave: 'all', states: ['completed'] })) all.push(child.result)
          const first = await ctx.childCounts({ wave: 1 })
          return { last, all: all.sort(), first: first.total }
        },
      },
    )
    const { engine } = await engineWith([leafJob, stages])
    expect(await engine.waitFor(await engine.enqueue(stages.with()), deadline)).toMatchObject({
      result: { last: [2, 2], all: [0, 1, 1, 2, 2], first: 1 },
    })
  })

  test('a last child whose time runs out wakes its parent, which sees it failed (case 9)', async () => {
    const endless = defineJob(
      { type: named('endless') },
      { timeouts: { ingest: 50 }, run: () => new Promise<never>(() => {}) },
    )
    const parent = defineJob(
      { type: named('patient') },
      {
        ingest: (ctx) => ctx.spawn([endless.with({}, { maxRetries: 0 })]),
        async aggregate(ctx) {
          const codes: unknown[] = []
          for await (const child of ctx.children(endless)) if (child.state === 'failed') codes.push(child.error.code)
          return codes
        },
      },
    )
    const { engine } = await engineWith([endless, parent])
    expect(await engine.waitFor(await engine.enqueue(parent.with()), deadline)).toMatchObject({ result: ['TIMEOUT'] })
  })

  test('a retried aggregate does not run the children again, and reads the same set', async () => {
    let leaves = 0
    let tries = 0
    const counted = defineJob(
      { type: named('counted') },
      {
        run() {
          leaves++
        },
      },
    )
    const parent = defineJob(
      { type: named('again') },
      {
        ...fastRetries,
        ingest: (ctx) => ctx.spawn([counted.with(), counted.with()]),
        async aggregate(ctx) {
          const { total } = await ctx.childCounts()
          if (++tries < 3) throw new Error('not yet')
          return { total, wave: ctx.wave, retryCount: ctx.retryCount }
        },
      },
    )
    const { engine } = await engineWith([counted, parent])
    expect(await engine.waitFor(await engine.enqueue(parent.with()), deadline)).toMatchObject({
      result: { total: 2, wave: 1, retryCount: 2 },
    })
    expect(leaves).toBe(2)
  })

  test('without an aggregate, what was returned is the result once the children have settled', async () => {
    const ended: string[] = []
    const child = defineJob(
      { type: named('child') },
      {
        run() {
          ended.push('child')
        },
      },
    )
    const one = defineJob(
      { type: named('one') },
      {
        async run(ctx) {
          await ctx.spawn([child.with()])
          return 'kept'
        },
      },
    )
    const ingestOnly = defineJob(
      { type: named('ingest-only'), result: z.string() },
      {
        async ingest(ctx) {
          await ctx.spawn([child.with()])
          return 'kept too'
        },
      },
    )
    const { engine } = await engineWith([child, one, ingestOnly])
    const [a, b] = [await engine.enqueue(one.with()), await engine.enqueue(ingestOnly.with())]
    expect(await engine.waitFor(a, deadline)).toMatchObject({ state: 'completed', result: 'kept' })
    expect(await engine.waitFor(b, deadline)).toMatchObject({ state: 'completed', result: 'kept too' })
    expect(ended).toHaveLength(2)
  })

  test('a whole tree at once: inner jobs skip their ingest, and one that has only `run` runs it after its children', async () => {
    const order: string[] = []
    const note = (name: string) => (ctx: JobContext) => {
      order.push(`${name} ${ctx.phase}`)
      return name
    }
    const two = defineJob({ type: named('two') }, { ingest: note('two'), aggregate: note('two') })
    const one = defineJob({ type: named('one') }, { run: note('one') })
    const ingestOnly = defineJob({ type: named('ingest') }, { ingest: note('ingest-only') })
    const { engine } = await engineWith([two, one, ingestOnly], { concurrency: 1 })
    const handle = await engine.enqueue(
      two.with({}, { children: [one.with({}, { children: [ingestOnly.with({}, { children: [] })] })] }),
    )
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: 'two' })
    expect(order).toEqual(['one aggregate', 'two aggregate'])
  })

  test('a nested job that runs after its children and spawns more runs once, and keeps its result', async () => {
    let runs = 0
    const leafless = defineJob({ type: named('leafless') }, { run() {} })
    const spawner = defineJob(
      { type: named('spawner') },
      {
        async run(ctx) {
          runs++
          await ctx.spawn([leafless.with()])
          return `run ${runs}`
        },
      },
    )
    const { engine } = await engineWith([leafless, spawner])
    const handle = await engine.enqueue(spawner.with({}, { children: [leafless.with()] }))
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: 'run 1' })
    expect(await engine.job(handle.id)).toMatchObject({ wave: 2, childCount: 2 })
  })

  test('deep trees of parents that are children', async () => {
    const nest = declareJob({ type: named('nest'), payload: z.object({ depth: z.number() }), result: z.number() })
    const nestJob = defineJob(nest, {
      async ingest(ctx) {
        const { depth } = ctx.payload
        if (depth === 0) return 1
        await ctx.spawn([nest.with({ depth: depth - 1 }), nest.with({ depth: depth - 1 })])
      },
      async aggregate(ctx) {
        let total = 1
        for await (const child of ctx.children(nest, { states: ['completed'] })) total += child.result
        return total
      },
    })
    const { engine } = await engineWith([nestJob], { concurrency: 20 })
    const handle = await engine.enqueue(nest.with({ depth: 6 }))
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: 127 })
  })
})
