import { describe, expect, test } from 'vitest'
import { saveCheckpoint } from '../../src/engine/context/checkpoint.ts'
import { defineJob } from '../../src/index.ts'
import { createGate } from '../support/gate.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()
const { engineWith } = engines

const rowOf = async (id: string) =>
  (await engines.database.pool.query(`select * from ${engines.database.schema}.job where id = $1`, [id])).rows[0]

/** A job that runs until the test lets it go. */
function heldJob(type = named('held')) {
  const running = createGate()
  const goOn = createGate()
  const job = defineJob(
    { type },
    {
      async run() {
        running.open()
        await goOn.opened
        return 'done'
      },
    },
  )
  return { job, running, goOn, type }
}

describe('holding a job', () => {
  test('a handler that has run for an hour on a live worker is left alone (case 38)', async () => {
    const { job, running, goOn } = heldJob()
    const { engine } = await engineWith([job], { heartbeat: 100 })
    // Another process that looks for dead workers all the time.
    await engineWith([defineJob({ type: named('other') }, { run() {} })], { heartbeat: 100 })
    const handle = await engine.enqueue(job.with())
    await running.opened
    await engines.database.pool.query(
      `update ${engines.database.schema}.job set claimed_at = now() - interval '1 hour',
         started_at = now() - interval '1 hour', updated_at = now() - interval '1 hour' where id = $1`,
      [handle.id],
    )
    const { worker_id } = await rowOf(handle.id)
    const beats = async () =>
      Number(
        (
          await engines.database.pool.query(`select beat from ${engines.database.schema}.worker where id = $1`, [
            worker_id,
          ])
        ).rows[0].beat,
      )
    // Many times over what a worker that shows no life is given.
    const then = await beats()
    await until(async () => (await beats()) >= then + 10, { timeout: 30_000 })
    expect(await rowOf(handle.id)).toMatchObject({ state: 'running', attempt: 1, retry_count: 0, worker_id })
    goOn.open()
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: 'done' })
    expect(await engine.job(handle.id)).toMatchObject({ attempt: 1, retryCount: 0 })
  })

  test('a draining worker does not take what another has just put back (case 41)', async () => {
    const own = heldJob()
    const put = heldJob()
    // It has slots to spare, and looks for work all the time.
    const draining = await engineWith([own.job, put.job], { concurrency: 5, poll: 20 })
    const kept = await draining.engine.enqueue(own.job.with())
    await own.running.opened
    const drained = draining.engine.stop({ grace: 30_000 })
    const giving = await engineWith([put.job])
    const given = await giving.engine.enqueue(put.job.with())
    await put.running.opened
    await giving.engine.stop({ grace: 0 })
    const { engine: reader } = await engineWith([], { start: false })
    expect(await reader.job(given.id)).toMatchObject({ state: 'queued', attempt: 1, retryCount: 0 })
    own.goOn.open()
    await drained
    expect(await reader.job(kept.id)).toMatchObject({ state: 'completed' })
    expect(await reader.job(given.id)).toMatchObject({ state: 'queued', attempt: 1 })
    const { engine: next } = await engineWith([defineJob({ type: put.type }, { run: (ctx) => ctx.attempt })])
    expect(await next.waitFor(given.id, deadline)).toMatchObject({ result: 2 })
    put.goOn.open()
  })

  test('what is held at the last attempt is let go in the transaction that fails the job (case 43)', async () => {
    let token = ''
    const lastType = named('last')
    const last = defineJob(
      { type: lastType },
      {
        backoff: { initial: 1, cap: 1 },
        async run(ctx) {
          if (ctx.lastAttempt) token = (await rowOf(ctx.id.slice(3))).claim_token
          throw new Error('every time')
        },
      },
    )
    const parent = defineJob(
      { type: named('parent') },
      { ingest: (ctx) => ctx.spawn([last.with({}, { maxRetries: 1 })]), aggregate: (ctx) => ctx.childCounts() },
    )
    // One slot: what the failed job kept would stop everything else.
    const { engine } = await engineWith([last, parent], { concurrency: 1 })
    const handle = await engine.enqueue(parent.with())
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: { failed: 1, open: 0 } })
    const { rows } = await engines.database.pool.query(
      `select job_id = $1 as parent, xid::text from ${engines.database.schema}.job_event
       where tree_id = $1 and ("from", "to") in (('running', 'failed'), ('waiting', 'queued'))`,
      [handle.id],
    )
    expect(rows).toHaveLength(2)
    expect(new Set(rows.map((row) => row.xid)).size).toBe(1)
    const { rows: held } = await engines.database.pool.query(
      `select id from ${engines.database.schema}.job where type = $1 and state = 'running'`,
      [lastType],
    )
    expect(held).toEqual([])
    const { rows: failed } = await engines.database.pool.query(
      `select id from ${engines.database.schema}.job where type = $1`,
      [lastType],
    )
    await expect(saveCheckpoint(engine.database, { id: failed[0].id, claimToken: token }, '1')).rejects.toMatchObject({
      code: 'LEASE_LOST',
    })
  })

  test('a paused job that is resumed is QUEUED, and RUNNING only once a worker has claimed it (case 45)', async () => {
    const type = named('paused')
    const { engine: steering, events } = await engineWith([], { start: false })
    const handle = await steering.enqueue({ type })
    await steering.pauseJob(handle.id)
    expect((await steering.resumeJob(handle.id)).job).toMatchObject({
      state: 'queued',
      workerId: null,
      claimToken: null,
      attempt: 0,
    })
    const { engine } = await engineWith([defineJob({ type }, { run: () => 'ran' })])
    expect(await engine.waitFor(handle.id, deadline)).toMatchObject({ result: 'ran' })
    expect((await events(handle.id)).map(({ from, to }) => [from, to])).toEqual([
      [null, 'queued'],
      ['queued', 'paused'],
      ['paused', 'queued'],
      ['queued', 'running'],
      ['running', 'completed'],
    ])
    expect((await rowOf(handle.id)).worker_id).not.toBeNull()
  })

  test('a child of a deleted parent is refused its progress, its checkpoint, its children and its result (case 34)', async () => {
    const running = createGate()
    const deleted = createGate()
    const refused = createGate<unknown[]>()
    const grandchild = named('grandchild')
    const child = defineJob(
      { type: named('child') },
      {
        async run(ctx) {
          running.open()
          await deleted.opened
          ctx.progress(1, 2)
          const settled = await Promise.allSettled([ctx.save({ at: 1 }), ctx.spawn([{ type: grandchild }])])
          refused.open(settled.map(({ status }) => status))
          return 'all the same'
        },
      },
    )
    const parent = defineJob({ type: named('parent') }, { ingest: (ctx) => ctx.spawn([child.with({}, { key: 'c' })]) })
    const { engine, events } = await engineWith([child, parent])
    const handle = await engine.enqueue(parent.with())
    await running.opened
    const { rows } = await engines.database.pool.query(
      `select id from ${engines.database.schema}.job where parent_id = $1`,
      [handle.id],
    )
    const { id } = rows[0]
    await engine.deleteJob(handle.id)
    deleted.open()
    await refused.opened
    await engine.stop()
    const { engine: reader } = await engineWith([], { start: false })
    expect(await reader.job(id)).toMatchObject({
      state: 'cancelled',
      cancelCode: 'parent_deleted',
      cancelReason: 'parent job deleted',
      result: null,
      progress: null,
      checkpoint: null,
      childCount: 0,
    })
    expect((await events(id)).at(-1)).toMatchObject({ to: 'cancelled' })
    const { rows: below } = await engines.database.pool.query(
      `select id from ${engines.database.schema}.job where type = $1`,
      [grandchild],
    )
    expect(below).toEqual([])
  })
})
