import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { declareJob, defineJob, PermanentError } from '../../src/index.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()
const { engineWith, run } = engines

describe('ctx.children', () => {
  const leaf = declareJob({
    type: named('leaf'),
    payload: z.object({ n: z.number() }),
    result: z.object({ n: z.number() }),
  })
  const leafJob = defineJob(leaf, {
    run({ payload }) {
      if (payload.n % 10 === 9) throw new PermanentError('nine', { code: 'NOT_FOUND' })
      return { n: payload.n }
    },
  })
  const other = defineJob({ type: named('other') }, { run: () => 'other' })

  test('pages through thousands, each once, in order; by type and state', async () => {
    const parent = defineJob(
      { type: named('wide') },
      {
        async ingest(ctx) {
          await ctx.spawn([...Array.from({ length: 1234 }, (_, n) => leaf.with({ n })), other.with(), other.with()])
        },
        async aggregate(ctx) {
          const numbers: number[] = []
          const ids: string[] = []
          let failed = 0
          for await (const child of ctx.children(leaf)) {
            ids.push(child.id)
            if (child.state === 'completed') numbers.push(child.result.n)
            if (child.state === 'failed') failed += child.error.code === 'NOT_FOUND' ? 1 : 1000
          }
          let untyped = 0
          for await (const child of ctx.children({ states: ['completed'] }))
            untyped += child.type === other.type ? 1 : 0
          let onlyFailed = 0
          for await (const child of ctx.children(leaf, { states: ['failed'] }))
            onlyFailed += child.error.message === 'nine' ? 1 : 0
          const sorted = [...ids].sort()
          return {
            numbers: numbers.reduce((sum, n) => sum + n, 0),
            distinct: new Set(ids).size,
            inOrder: ids.every((id, index) => id === sorted[index]),
            failed,
            onlyFailed,
            untyped,
            counts: await ctx.childCounts(),
          }
        },
      },
    )
    const one = await engineWith([leafJob, other, parent], { concurrency: 200 })
    const end = await one.engine.waitFor(await one.engine.enqueue(parent.with()), deadline)
    const expected = Array.from({ length: 1234 }, (_, n) => n).filter((n) => n % 10 !== 9)
    expect(end).toMatchObject({
      state: 'completed',
      result: {
        numbers: expected.reduce((sum, n) => sum + n, 0),
        distinct: 1234,
        inOrder: true,
        failed: 123,
        onlyFailed: 123,
        untyped: 2,
        counts: { total: 1236, open: 0, completed: 1113, failed: 123, cancelled: 0, queued: 0 },
      },
    })
  })

  test('cancelled children say why; archived ones are left out; deleted ones are gone', async () => {
    const parent = defineJob(
      { type: named('mixed') },
      {
        ingest: (ctx) => ctx.spawn([1, 2, 3, 4].map((n) => leaf.with({ n }, { key: String(n), queue: 'nobody' }))),
        async aggregate(ctx) {
          const seen: unknown[] = []
          for await (const child of ctx.children(leaf)) {
            if (child.state === 'cancelled') seen.push([child.key, child.cancelCode, child.cancelReason])
          }
          return { seen, counts: await ctx.childCounts() }
        },
      },
    )
    const { engine } = await engineWith([leafJob, parent], { queues: ['default'] })
    const handle = await engine.enqueue(parent.with())
    await until(async () => (await engine.job(handle.id))?.state === 'waiting')
    const { rows } = await engines.database.pool.query(
      `select id from ${engines.database.schema}.job where parent_id = $1 order by key`,
      [handle.id],
    )
    await engine.archiveJob(rows[0].id)
    await engine.deleteJob(rows[1].id)
    await engine.cancelJob(rows[2].id)
    await engine.cancelJob(rows[3].id, { reason: 'not wanted' })
    expect(await engine.waitFor(handle, deadline)).toMatchObject({
      result: {
        seen: [
          ['3', 'requested', 'cancelled on request'],
          ['4', 'requested', 'not wanted'],
        ],
        counts: { total: 2, cancelled: 2 },
      },
    })
  })

  test('a stored result that is not what the contract says is an error, not a lie', async () => {
    const stranger = declareJob({ type: leaf.type, result: z.object({ n: z.string() }) })
    const parent = defineJob(
      { type: named('misled') },
      {
        ingest: (ctx) => ctx.spawn([leaf.with({ n: 1 })]),
        async aggregate(ctx) {
          for await (const child of ctx.children(stranger)) return child.state
        },
      },
    )
    const { end } = await run(parent, [leafJob])
    expect(end).toMatchObject({ state: 'failed', errorCode: 'VALIDATION' })
  })

  test('ctx.log knows its job', async () => {
    const job = defineJob(
      { type: named('chatty') },
      {
        run(ctx) {
          ctx.log.info({ extra: 1 }, 'hello')
        },
      },
    )
    const one = await run(job)
    expect(one.log.find((line) => line.msg === 'hello')).toMatchObject({
      job: `JB_${one.id}`,
      type: job.type,
      phase: 'ingest',
      attempt: 1,
      extra: 1,
    })
  })
})
