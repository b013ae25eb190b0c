import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { declareJob, defineJob, PermanentError, SnoozeError } from '../../src/index.ts'
import { createGate } from '../support/gate.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()
const { engineWith } = engines
const fastRetries = { backoff: { initial: 1, cap: 5 } }

describe('two phases', () => {
  const leaf = declareJob({ type: named('leaf'), payload: z.object({ n: z.number() }), result: z.number() })
  const leafJob = defineJob(leaf, {
    ...fastRetries,
    run({ payload }) {
      if (payload.n < 0) throw new PermanentError('negative')
      return payload.n
    },
  })

  test('children are claimed as soon as they are there, however rarely the worker polls', async () => {
    const slow = defineJob(
      { type: named('slow'), payload: z.object({ children: z.number() }) },
      {
        async ingest(ctx) {
          // Longer than the worker looks on after a claim: it waits for a ring by then.
          await sleep(200)
          await ctx.spawn(Array.from({ length: ctx.payload.children }, (_, n) => leaf.with({ n })))
        },
        async aggregate() {},
      },
    )
    const { engine } = await engineWith([leafJob, slow], { poll: '10m' })
    for (const children of [3, 300]) {
      const handle = await engine.enqueue(slow.with({ children }))
      expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'completed' })
    }
  })

  test('children run, and the parent is woken once to aggregate them', async () => {
    const phases: string[] = []
    const sum = defineJob(
      { type: named('sum'), result: z.number() },
      {
        async ingest(ctx) {
          phases.push(ctx.phase)
          await ctx.spawn([1, 2, 3].map((n) => leaf.with({ n })))
        },
        async aggregate(ctx) {
          phases.push(`${ctx.phase} ${ctx.wave}`)
          let total = 0
          for await (const child of ctx.children(leaf, { states: ['completed'] })) total += child.result
          return total
        },
      },
    )
    const { engine, events } = await engineWith([leafJob, sum])
    const handle = await engine.enqueue(sum.with())
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'completed', result: 6 })
    expect(phases).toEqual(['ingest', 'aggregate 1'])
    const log = await events(handle.id)
    expect(log.map((event) => `${event.from}>${event.to}`)).toEqual([
      'null>queued',
      'queued>running',
      'running>waiting',
      'waiting>queued',
      'queued>running',
      'running>completed',
    ])
    expect(log.filter((event) => event.detail?.operationId)).toHaveLength(1)
  })

  test('no children: it aggregates at once (case 7)', async () => {
    const empty = defineJob(
      { type: named('empty') },
      {
        ingest: (ctx) => ctx.spawn([]),
        aggregate: async (ctx) => ({ wave: ctx.wave, counts: await ctx.childCounts() }),
      },
    )
    const { engine } = await engineWith([empty], { poll: 60_000 })
    expect(await engine.waitFor(await engine.enqueue(empty.with()), deadline)).toMatchObject({
      result: { wave: 1, counts: { total: 0, open: 0, completed: 0 } },
    })
  })

  test('a phase that spawns nothing at all ends the job', async () => {
    let aggregated = false
    const plain = defineJob(
      { type: named('plain') },
      {
        ingest: () => 'from ingest',
        aggregate() {
          aggregated = true
        },
      },
    )
    const { engine } = await engineWith([plain])
    expect(await engine.waitFor(await engine.enqueue(plain.with()), deadline)).toMatchObject({ result: 'from ingest' })
    expect(aggregated).toBe(false)
  })

  test('the last child, or every child, fails for good: the parent wakes and sees it (cases 1 and 12)', async () => {
    const parent = defineJob(
      { type: named('parent') },
      {
        async ingest(ctx) {
          await ctx.spawn((ctx.payload as number[]).map((n) => leaf.with({ n })))
        },
        async aggregate(ctx) {
          const seen = []
          for await (const child of ctx.children(leaf)) {
            seen.push(child.state === 'failed' ? `${child.error.code}: ${child.error.message}` : child.state)
          }
          return seen
        },
      },
    )
    const { engine } = await engineWith([leafJob, parent], { concurrency: 1 })
    const [last, all] = await engine.enqueueMany([parent.with([1, 2, -1]), parent.with([-1, -2])])
    expect(await engine.waitFor(last!, deadline)).toMatchObject({
      state: 'completed',
      result: ['completed', 'completed', 'UNKNOWN: negative'],
    })
    expect(await engine.waitFor(all!, deadline)).toMatchObject({
      result: ['UNKNOWN: negative', 'UNKNOWN: negative'],
    })
  })

  test('every child ends before the parent waits (case 10)', async () => {
    // Children from outside run while the ingest still does; only its end can settle the edge.
    const gate = createGate()
    const slow = defineJob(
      { type: named('slow') },
      {
        async ingest(ctx) {
          await gate.opened
          await ctx.spawn([])
        },
        aggregate: (ctx) => ctx.childCounts(),
      },
    )
    const { engine } = await engineWith([leafJob, slow])
    const handle = await engine.enqueue(slow.with())
    await until(async () => (await engine.job(handle.id))?.state === 'running')
    const { children } = await engine.spawnChildren(handle.id, [leaf.with({ n: 1 }), leaf.with({ n: -1 })])
    for (const child of children) await engine.waitFor(child.id, deadline)
    expect((await engine.job(handle.id))?.state).toBe('running')
    gate.open()
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: { completed: 1, failed: 1, open: 0 } })
  })

  test('a child in retry, snoozed or paused is not done (case 13), and a waiting parent is never claimed (case 15)', async () => {
    const attempts = new Map<string, number>()
    const stubborn = defineJob(
      { type: named('stubborn') },
      {
        backoff: { initial: 50, cap: 50 },
        async run(ctx) {
          const attempt = (attempts.get(ctx.id) ?? 0) + 1
          attempts.set(ctx.id, attempt)
          const kind = ctx.payload as string
          if (kind === 'retried' && attempt < 3) throw new Error('again')
          if (kind === 'snoozed' && attempt === 1) throw new SnoozeError(100)
          return attempt
        },
      },
    )
    let aggregations = 0
    const parent = defineJob(
      { type: named('patient') },
      {
        async ingest(ctx) {
          await ctx.spawn(
            ['retried', 'snoozed', 'paused'].map((kind) => stubborn.with(kind, { key: kind, priority: 1 })),
          )
        },
        async aggregate(ctx) {
          aggregations++
          const results: Record<string, unknown> = {}
          for await (const child of ctx.children({ states: ['completed'] })) results[child.key!] = child.result
          return results
        },
      },
    )
    const { engine, events } = await engineWith([parent], { concurrency: 4 })
    const handle = await engine.enqueue(parent.with())
    await until(async () => (await engine.job(handle.id))?.state === 'waiting')
    const { rows } = await engines.database.pool.query(
      `select id from ${engines.database.schema}.job where parent_id = $1 and key = 'paused'`,
      [handle.id],
    )
    await engine.pauseJob(rows[0].id)
    const other = await engineWith([stubborn, parent], { concurrency: 4 })
    const openChildren = async () => (await engine.job(handle.id))?.openChildren
    await until(async () => (await openChildren()) === 1)
    expect(await engine.job(handle.id)).toMatchObject({ state: 'waiting', wave: 0 })
    expect(aggregations).toBe(0)
    await other.engine.resumeJob(rows[0].id)
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: { retried: 3, snoozed: 2, paused: 1 } })
    expect(aggregations).toBe(1)
    const log = await events(handle.id)
    const claimedWhileWaiting = log.filter((event, index) => event.to === 'running' && log[index - 1]?.to === 'waiting')
    expect(claimedWhileWaiting).toEqual([])
  })
})
