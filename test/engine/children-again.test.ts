import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { declareJob, defineJob } from '../../src/index.ts'
import { createGate } from '../support/gate.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()
const { engineWith } = engines

/** A leaf that counts its runs by key. */
function countedLeaf() {
  const runs: Record<string, number> = {}
  const leaf = defineJob(
    { type: named('leaf') },
    {
      run(ctx) {
        runs[ctx.key!] = (runs[ctx.key!] ?? 0) + 1
      },
    },
  )
  return { leaf, runs }
}

const wavesOf = async (events: (id: string) => Promise<{ from: string | null; to: string | null }[]>, id: string) =>
  (await events(id)).filter(({ from, to }) => from === 'waiting' && to === 'queued').length

describe('children that are there already', () => {
  test('a tree enqueued again is the first one, whose children have settled (case 3)', async () => {
    const { leaf, runs } = countedLeaf()
    const parent = defineJob(
      { type: named('parent') },
      { ingest: (ctx) => ctx.spawn([leaf.with({}, { key: 'a' })]), aggregate: (ctx) => ctx.wave },
    )
    const { engine, events } = await engineWith([leaf, parent])
    const tree = parent.with({}, { key: 'tree', children: [leaf.with({}, { key: 'a' }), leaf.with({}, { key: 'b' })] })
    const first = await engine.enqueue(tree)
    expect(await engine.waitFor(first, deadline)).toMatchObject({ result: 1 })
    const again = await engine.enqueue(tree)
    expect(again).toMatchObject({ id: first.id, deduplicated: true })
    expect(await engine.waitFor(again, deadline)).toMatchObject({ result: 1 })
    expect(runs).toEqual({ a: 1, b: 1 })
    expect(await wavesOf(events, first.id)).toBe(1)
  })

  test('an ingest that spawns a child whose key has completed before counts it as settled (case 3)', async () => {
    const { leaf, runs } = countedLeaf()
    const added = createGate()
    const parent = defineJob(
      { type: named('parent') },
      {
        async ingest(ctx) {
          await added.opened
          await ctx.spawn([leaf.with({}, { key: 'a' }), leaf.with({}, { key: 'b' })])
        },
        aggregate: async (ctx) => ({ ...(await ctx.childCounts()), wave: ctx.wave }),
      },
    )
    const { engine, events } = await engineWith([leaf, parent])
    const handle = await engine.enqueue(parent.with())
    await until(async () => (await engine.job(handle.id))?.state === 'running')
    const { children } = await engine.spawnChildren(handle.id, [leaf.with({}, { key: 'a' })])
    expect(await engine.waitFor(children[0]!.id, deadline)).toMatchObject({ state: 'completed' })
    added.open()
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: { total: 2, completed: 2, wave: 1 } })
    expect(runs).toEqual({ a: 1, b: 1 })
    expect(await wavesOf(events, handle.id)).toBe(1)
    expect(await engine.job(handle.id)).toMatchObject({ childCount: 2, openChildren: 0 })
  })

  test('an aggregate that spawns only what is there waits for nothing new, and is woken again (case 54)', async () => {
    const { leaf, runs } = countedLeaf()
    const keys: (string | undefined)[] = []
    const receipts = async (id: string) =>
      (
        await engines.database.pool.query<{ child_set_key: string }>(
          `select child_set_key from ${engines.database.schema}.wake_receipt where parent_id = $1`,
          [id],
        )
      ).rows[0]?.child_set_key
    const parent = defineJob(
      { type: named('parent') },
      {
        ingest: (ctx) => ctx.spawn([leaf.with({}, { key: 'a' })]),
        async aggregate(ctx) {
          keys.push(await receipts(ctx.id.slice(3)))
          if (ctx.wave < 3) return ctx.spawn([leaf.with({}, { key: 'a' })])
          return { wave: ctx.wave, all: (await ctx.childCounts({ wave: 'all' })).total }
        },
      },
    )
    const { engine, events } = await engineWith([leaf, parent])
    const handle = await engine.enqueue(parent.with())
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: { wave: 3, all: 1 } })
    expect(runs).toEqual({ a: 1 })
    expect(await wavesOf(events, handle.id)).toBe(3)
    // The set is the same, the wave is not: no receipt stands in the way of the next wake.
    expect(new Set(keys).size).toBe(3)
  })

  test('a second wait whose only new child is deleted is over too (case 54)', async () => {
    const { leaf } = countedLeaf()
    const elsewhere = named('elsewhere')
    const parent = defineJob(
      { type: named('parent') },
      {
        ingest: (ctx) => ctx.spawn([leaf.with({}, { key: 'a' })]),
        async aggregate(ctx) {
          if (ctx.wave === 1) return ctx.spawn([{ type: elsewhere }])
          return { wave: ctx.wave, last: (await ctx.childCounts()).total }
        },
      },
    )
    const { engine, events } = await engineWith([leaf, parent])
    const handle = await engine.enqueue(parent.with())
    const child = await until(async () => {
      const { rows } = await engines.database.pool.query<{ id: string }>(
        `select id from ${engines.database.schema}.job where parent_id = $1 and type = $2`,
        [handle.id, elsewhere],
      )
      return rows[0]?.id
    })
    await engine.deleteJob(child)
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: { wave: 2, last: 0 } })
    expect(await wavesOf(events, handle.id)).toBe(2)
  })
})

describe('children that have children', () => {
  const nest = declareJob({ type: named('nest'), payload: z.object({ depth: z.number() }), result: z.number() })

  test('are not done until those are, and they have aggregated: at any depth (case 14)', async () => {
    const goOn = createGate()
    const aggregating = createGate()
    const mayAggregate = createGate()
    const aggregated: number[] = []
    const nestJob = defineJob(nest, {
      async ingest(ctx) {
        const { depth } = ctx.payload
        if (depth > 0) return void (await ctx.spawn([nest.with({ depth: depth - 1 }, { key: `${depth - 1}` })]))
        await goOn.opened
        return 0
      },
      async aggregate(ctx) {
        const { depth } = ctx.payload
        if (depth === 1) {
          aggregating.open()
          await mayAggregate.opened
        }
        aggregated.push(depth)
        for await (const child of ctx.children(nest, { states: ['completed'] })) return child.result + 1
        throw new Error('woken without a completed child')
      },
    })
    const { engine } = await engineWith([nestJob])
    const handle = await engine.enqueue(nest.with({ depth: 4 }))
    const states = async () =>
      (
        await engines.database.pool.query<{ state: string }>(
          `select state from ${engines.database.schema}.job where tree_id = $1 order by depth`,
          [handle.id],
        )
      ).rows.map(({ state }) => state)
    // The leaf runs: every job above it waits, whatever its own child has spawned and given back.
    await until(async () => (await states()).at(4) === 'running')
    expect(await states()).toEqual(['waiting', 'waiting', 'waiting', 'waiting', 'running'])
    goOn.open()
    // The leaf is done, its parent aggregates: that is not done, so those above it go on waiting.
    await aggregating.opened
    expect(await states()).toEqual(['waiting', 'waiting', 'waiting', 'running', 'completed'])
    mayAggregate.open()
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: 4 })
    expect(aggregated).toEqual([1, 2, 3, 4])
  })
})
