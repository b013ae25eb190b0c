import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { defineJob } from '../../src/index.ts'
import { createGate } from '../support/gate.ts'
import { named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()
const { run } = engines

describe('ctx.spawn', () => {
  const leaf = defineJob(
    { type: named('leaf'), payload: z.object({ n: z.number() }), result: z.number() },
    {
      run: ({ payload }) => payload.n,
    },
  )

  test('returns the ids that the children will have', async () => {
    let ids: string[] = []
    const parent = defineJob(
      { type: named('parent') },
      {
        async ingest(ctx) {
          ids = [
            ...(await ctx.spawn([leaf.with({ n: 1 }), leaf.with({ n: 2 }, { key: 'k' })])),
            ...(await ctx.spawn([leaf.with({ n: 3 }, { key: 'k' }), leaf.with({ n: 4 })])),
          ]
        },
        async aggregate(ctx) {
          const seen: unknown[] = []
          for await (const child of ctx.children(leaf)) seen.push([child.id, child.key, child.payload.n, child.state])
          return seen
        },
      },
    )
    const { end } = await run(parent, [leaf])
    expect(ids).toEqual(ids.map(() => expect.stringMatching(/^JB_[0-9a-f-]{36}$/)))
    // The third has the key of the second: it is the second.
    expect(ids[2]).toBe(ids[1])
    expect(end).toMatchObject({
      result: [
        [ids[0], null, 1, 'completed'],
        [ids[1], 'k', 2, 'completed'],
        [ids[3], null, 4, 'completed'],
      ],
    })
  })

  test('of a key that an earlier wave has taken, returns that child', async () => {
    const parent = defineJob(
      { type: named('keyed') },
      {
        async ingest(ctx) {
          await ctx.save(await ctx.spawn([leaf.with({ n: 1 }, { key: 'k' })]))
        },
        async aggregate(ctx) {
          if (ctx.wave === 1) {
            const ids = await ctx.spawn([leaf.with({ n: 2 }, { key: 'k' }), leaf.with({ n: 3 })])
            return ctx.save([...(ctx.saved as string[]), ...ids])
          }
          const all: string[] = []
          for await (const child of ctx.children(leaf, { wave: 'all' })) all.push(child.id)
          return { saved: ctx.saved, all }
        },
      },
    )
    const { end } = await run(parent, [leaf])
    expect(end.state).toBe('completed')
    const { saved, all } = (end as unknown as { result: { saved: string[]; all: string[] } }).result
    expect(saved[1]).toBe(saved[0])
    expect(all).toEqual([saved[0], saved[2]])
  })

  test('names every child that is wrong, and adds none of them', async () => {
    const failures: unknown[] = []
    const parent = defineJob(
      { type: named('strict') },
      {
        async ingest(ctx) {
          await ctx
            .spawn([leaf.with({ n: 1 }), leaf.with({ n: 'x' as never }), { type: '' }])
            .catch((error) => failures.push(error.issues.map((issue: { path: string[] }) => issue.path.join('.'))))
          await ctx.spawn([leaf.with({ n: 7 })])
        },
        aggregate: (ctx) => ctx.childCounts(),
      },
    )
    const { end } = await run(parent, [leaf])
    expect(failures).toEqual([['1.payload.n', '2.type']])
    expect(end).toMatchObject({ state: 'completed', result: { total: 1 } })
  })

  test('a call that nobody awaited still counts: its children are there, and its failure is the attempt’s', async () => {
    const careless = defineJob(
      { type: named('careless') },
      {
        ingest(ctx) {
          void ctx.spawn([leaf.with({ n: 1 })])
        },
        aggregate: (ctx) => ctx.childCounts(),
      },
    )
    expect((await run(careless, [leaf])).end).toMatchObject({ result: { total: 1 } })
    const wrong = defineJob(
      { type: named('wrong') },
      {
        async ingest(ctx) {
          void ctx.spawn([{ type: '' }])
          await new Promise((resolve) => setTimeout(resolve, 5))
        },
        aggregate() {},
      },
    )
    expect((await run(wrong)).end).toMatchObject({ state: 'failed', errorCode: 'VALIDATION' })
  })

  test('and everything else that changes something takes nothing after the end', async () => {
    const failures: unknown[] = []
    const tried = createGate()
    const quick = defineJob(
      { type: named('quick') },
      {
        run(ctx) {
          setTimeout(async () => {
            await ctx.spawn([{ type: 'x' }]).catch((error) => failures.push(error.message))
            await ctx.save(1).catch((error) => failures.push(error.message))
            ctx.progress(1)
            tried.open()
          }, 20)
        },
      },
    )
    const { engine, id } = await run(quick)
    await tried.opened
    expect(failures).toEqual([expect.stringContaining('over'), expect.stringContaining('over')])
    expect(await engine.job(id)).toMatchObject({ checkpoint: null, progress: null, childCount: 0 })
  })
})
