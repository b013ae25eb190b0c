import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { declareJob, defineJob, type JobContext, PermanentError, type StreamedChildren } from '../../src/index.ts'
import { createGate } from '../support/gate.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()
const { engineWith, run } = engines

const leafContract = declareJob({ type: named('leaf'), payload: z.object({ n: z.number() }), result: z.number() })
const leaf = defineJob(leafContract, { run: ({ payload }) => payload.n })
const keyed = (n: number) => leaf.with({ n }, { key: String(n) })
const fastRetries = { backoff: { initial: 1, cap: 5 } }

async function* numbers(count: number, before: (n: number) => unknown = () => {}) {
  for (let n = 0; n < count; n++) {
    await before(n)
    yield keyed(n)
  }
}

/** Children of the one parent of a type, in the database. */
async function childrenOf(type: string): Promise<number> {
  const { rows } = await engines.database.pool.query(
    'select count(*)::int n from coppice.job c join coppice.job p on p.id = c.parent_id where p.type = $1',
    [type],
  )
  return rows[0].n
}

const sum = async (ctx: JobContext) => {
  let total = 0
  let count = 0
  for await (const child of ctx.children(leafContract, { states: ['completed'] })) {
    total += child.result
    count++
  }
  return { count, total }
}

describe('ctx.spawn of a stream', () => {
  test('writes chunks as they come, asks for no more than it has written, and children run meanwhile', async () => {
    const type = named('streams')
    const ahead: number[] = []
    let streamed: StreamedChildren | undefined
    let ranEarly = 0
    const parent = defineJob(
      { type },
      {
        async ingest(ctx) {
          streamed = await ctx.spawn(
            numbers(1203, async (n) => {
              if (n % 500 === 0) ahead.push(n - (await childrenOf(type)))
              if (n !== 1000) return
              ranEarly = await until(async () => (await ctx.childCounts({ wave: 'all' })).completed)
            }),
          )
        },
        aggregate: sum,
      },
    )
    const { end } = await run(parent, [leaf])
    expect(streamed).toEqual({ created: 1203, existing: 0 })
    expect(ahead).toEqual([0, 0, 0])
    expect(ranEarly).toBeGreaterThan(0)
    expect(end).toMatchObject({ result: { count: 1203, total: (1202 * 1203) / 2 } })
  })

  test('takes anything that can be iterated, and goes together with arrays', async () => {
    const seen: unknown[] = []
    const parent = defineJob(
      { type: named('mixed') },
      {
        async ingest(ctx) {
          function* generator() {
            yield keyed(1)
            yield keyed(2)
          }
          seen.push(await ctx.spawn(generator()))
          seen.push(await ctx.spawn(new Set([keyed(2), keyed(3)])))
          const [two, five] = await ctx.spawn([keyed(2), leaf.with({ n: 5 })])
          for await (const child of ctx.children({ wave: 'all' })) if (child.id === two) seen.push('there')
          seen.push(five?.slice(0, 3))
          seen.push(await ctx.spawn(numbers(0)))
        },
        aggregate: sum,
      },
    )
    const { end } = await run(parent, [leaf])
    expect(seen.filter((what) => what !== 'there')).toEqual([
      { created: 2, existing: 0 },
      { created: 1, existing: 1 },
      'JB_',
      { created: 0, existing: 0 },
    ])
    expect(end).toMatchObject({ result: { count: 4, total: 11 } })
  })

  test('of nothing is a fan-out too: AGGREGATE follows at once', async () => {
    const parent = defineJob(
      { type: named('empty') },
      {
        ingest: (ctx) => ctx.spawn(numbers(0)),
        aggregate: sum,
      },
    )
    expect((await run(parent, [leaf])).end).toMatchObject({ result: { count: 0 } })
  })

  test.each([
    ['without a key', leaf.with({ n: 1 }), '600.key'],
    ['that is wrong', leaf.with({ n: 'x' as never }, { key: 'x' }), '600.payload.n'],
    ['that is no job', 7 as never, '600'],
  ])('stops at a child %s: nothing of its chunk is written, the chunks before are', async (_, wrong, path) => {
    const type = named('strict')
    const counts: unknown[] = []
    const parent = defineJob(
      { type },
      {
        async ingest(ctx) {
          async function* children() {
            yield* numbers(600)
            yield wrong
            yield keyed(601)
          }
          await ctx.spawn(children()).catch((error) => counts.push(error.code, error.issues[0].path.join('.')))
          counts.push(await childrenOf(type))
          throw new PermanentError('enough')
        },
        aggregate() {},
      },
    )
    const { end, id, engine } = await run(parent, [leaf])
    expect(counts).toEqual(['VALIDATION', path, 500])
    // Claimed without children, it ends with those that it has.
    expect(end).toMatchObject({ state: 'failed', error: 'enough' })
    expect(await engine.job(id)).toMatchObject({ childCount: 500, openChildren: 0 })
  })

  test('refuses what cannot be iterated', async () => {
    const parent = defineJob(
      { type: named('odd') },
      {
        ingest: (ctx) => ctx.spawn(7 as never),
        aggregate() {},
      },
    )
    expect((await run(parent)).end).toMatchObject({ state: 'failed', errorCode: 'VALIDATION' })
  })

  test('retried, adds only what is missing (case 14)', async () => {
    const type = named('retried')
    const streamed: StreamedChildren[] = []
    const parent = defineJob(
      { type },
      {
        ...fastRetries,
        async ingest(ctx) {
          streamed.push(
            await ctx.spawn(
              numbers(900, (n) => {
                if (ctx.retryCount === 0 && n === 700) throw new Error('the source broke')
              }),
            ),
          )
        },
        aggregate: sum,
      },
    )
    const { end } = await run(parent, [leaf])
    expect(streamed).toEqual([{ created: 400, existing: 500 }])
    expect(end).toMatchObject({ result: { count: 900 } })
    expect(await childrenOf(type)).toBe(900)
  })

  test.each([
    ['cancelled', 'cancelJob'],
    ['deleted', 'deleteJob'],
  ] as const)(
    'of a job that is %s meanwhile throws ParentGoneError, and its children are cancelled',
    async (_, verb) => {
      const type = named(verb)
      const reached = createGate()
      const go = createGate()
      const errors: unknown[] = []
      const parent = defineJob(
        { type },
        {
          async ingest(ctx) {
            const stream = numbers(1100, async (n) => {
              if (n !== 600) return
              reached.open()
              await go.opened
            })
            await ctx.spawn(stream).catch((error) => {
              errors.push(error.code)
              throw error
            })
          },
          aggregate() {},
        },
      )
      // Nobody here runs the children.
      const { engine, log } = await engineWith([parent])
      const { id } = await engine.enqueue(parent.with())
      await reached.opened
      const { cancelledDescendants } = await engine[verb](id)
      go.open()
      expect(cancelledDescendants).toBe(500)
      await until(() => errors.length > 0)
      expect(errors).toEqual(['PARENT_GONE'])
      const { rows } = await engines.database.pool.query(
        'select state, count(*)::int n from coppice.job where parent_id = $1 group by state',
        [id],
      )
      expect(rows).toEqual([{ state: 'cancelled', n: 500 }])
      expect(log.filter((line) => line.level >= 50)).toEqual([])
    },
  )

  test('at shutdown stops between two children; the next worker adds the rest', async () => {
    const type = named('interrupted')
    const reached = createGate()
    const streamed: StreamedChildren[] = []
    let stopping = true
    const parent = defineJob(
      { type },
      {
        async ingest(ctx) {
          const stream = numbers(800, async (n) => {
            if (!stopping || n !== 650) return
            reached.open()
            await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
          })
          streamed.push(await ctx.spawn(stream))
        },
        aggregate: sum,
      },
    )
    const first = await engineWith([parent, leaf], { grace: 0 })
    const { id } = await first.engine.enqueue(parent.with())
    await reached.opened
    await first.engine.stop()
    expect(await childrenOf(type)).toBe(500)
    stopping = false
    const second = await engineWith([parent, leaf])
    expect(await second.engine.waitFor(id, deadline)).toMatchObject({ result: { count: 800 } })
    expect(streamed).toEqual([{ created: 300, existing: 500 }])
    expect(await second.engine.job(id)).toMatchObject({ retryCount: 0 })
  })
})
