import { randomUUID } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { cancelJob } from '../../src/engine/cascade.ts'
import { defineJob } from '../../src/index.ts'
import { createGate } from '../support/gate.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()
const { engineWith } = engines

const fast = { backoff: { initial: 1, cap: 5 } }

describe('steering a job while it runs', () => {
  const waiting = () => {
    const reasons: unknown[] = []
    const running = createGate<string>()
    const goOn = createGate()
    const ended = createGate()
    const job = defineJob(
      { type: named('steered') },
      {
        ...fast,
        async run(ctx) {
          running.open(ctx.id)
          const aborted = new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
          await Promise.race([aborted, goOn.opened])
          if (ctx.signal.aborted) reasons.push((ctx.signal.reason as { code: string }).code)
          ended.open()
          return 'finished all the same'
        },
      },
    )
    return { job, reasons, running, goOn, ended }
  }

  test('a cancel marks the job at once, reaches its signal, and its result is ignored', async () => {
    const { job, reasons, running, ended } = waiting()
    const { engine, events } = await engineWith([job])
    const handle = await engine.enqueue(job.with())
    await running.opened
    const { job: cancelled } = await engine.cancelJob(handle.id, { reason: 'changed my mind', actor: 'me' })
    expect(cancelled.state).toBe('cancelled')
    await ended.opened
    expect(reasons).toEqual(['CANCELLED'])
    expect(await engine.waitFor(handle, deadline)).toEqual({
      id: handle.id,
      state: 'cancelled',
      cancelCode: 'requested',
      cancelReason: 'changed my mind',
    })
    expect((await events(handle.id)).at(-1)).toMatchObject({ to: 'cancelled', actor: 'me', reason: 'changed my mind' })
  })

  test('a cancel whose ring is lost as LISTEN is cut reaches it once that is back (case 47)', async () => {
    const { job, reasons, running, ended } = waiting()
    // Nothing else looks in time: no beat, no poll.
    const { engine, test: database } = await engineWith([job], { heartbeat: 60_000, poll: 60_000 })
    const handle = await engine.enqueue(job.with())
    await running.opened
    await until(() => engine.doorbell.listening)
    // Past the engine, so that nobody rings: as if it had happened between the two connections.
    await cancelJob(engine.database, handle.id, { actor: 'elsewhere', reason: 'gap' })
    expect(reasons).toEqual([])
    await database.pool.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where application_name = 'coppice doorbell' and datname = current_database()`,
    )
    await ended.opened
    expect(reasons).toEqual(['CANCELLED'])
    expect(engine.doorbell.reconnects).toBe(1)
    expect((await engine.job(handle.id))!.state).toBe('cancelled')
  })

  test('a cancel in another process reaches it by the doorbell', async () => {
    const { job, reasons, running, ended } = waiting()
    // Beats are far apart: what comes before the first can only be the ring.
    const { engine } = await engineWith([job], { heartbeat: 60_000, poll: 60_000 })
    const { engine: other } = await engineWith([], { start: false })
    const handle = await other.enqueue(job.with())
    await running.opened
    await other.cancelJob(handle.id)
    await ended.opened
    expect(reasons).toEqual(['CANCELLED'])
    expect(engine.running).toBe(true)
  })

  test('a cancel by SQL, that rings no bell, reaches it by the heartbeat', async () => {
    const { job, reasons, running, ended } = waiting()
    const { engine } = await engineWith([job], { heartbeat: 200 })
    const handle = await engine.enqueue(job.with())
    await running.opened
    await engines.database.pool.query(
      `with gone as (update ${engines.database.schema}.job set state = 'cancelled', version = version + 1 where id = $1 returning *)
       insert into ${engines.database.schema}.job_event (kind, job_id, tree_id, type, "from", "to", phase, wave, attempt, version, actor)
       select 'moved', id, tree_id, type, 'running', 'cancelled', phase, wave, attempt, version, 'sql' from gone`,
      [handle.id],
    )
    await ended.opened
    expect(reasons).toEqual(['CANCELLED'])
  })

  test('a deleted job’s handler is told, and its result refused', async () => {
    const { job, reasons, running, ended } = waiting()
    const { engine } = await engineWith([job])
    const handle = await engine.enqueue(job.with())
    await running.opened
    const waited = engine.waitFor(handle, deadline).catch((error: unknown) => error)
    await engine.deleteJob(handle.id)
    await ended.opened
    expect(reasons).toEqual(['CANCELLED'])
    expect(await waited).toMatchObject({ code: 'NOT_FOUND' })
    expect(await engine.job(handle.id)).toBeNull()
  })

  test('a job taken away while it runs: LEASE_LOST, and its late result is refused', async () => {
    const { job, reasons, running, goOn, ended } = waiting()
    const { engine } = await engineWith([job], { heartbeat: 200 })
    const handle = await engine.enqueue(job.with())
    await running.opened
    await engines.database.pool.query(
      `update ${engines.database.schema}.job set claim_token = gen_random_uuid(), worker_id = $2 where id = $1`,
      [handle.id, randomUUID()],
    )
    await ended.opened
    expect(reasons).toEqual(['LEASE_LOST'])
    // Nobody has it now: it goes back, and runs again to its end.
    goOn.open()
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'completed' })
    expect(await engine.job(handle.id)).toMatchObject({ attempt: 2, retryCount: 1 })
  })

  test('a paused running job goes on, and lands in PAUSED where it would retry or wait', async () => {
    const running = createGate()
    const goOn = createGate()
    const job = defineJob(
      { type: named('paused') },
      {
        ...fast,
        async run(ctx) {
          if (ctx.attempt > 1) return 'resumed'
          running.open()
          await goOn.opened
          throw new Error('retry me')
        },
      },
    )
    const { engine } = await engineWith([job])
    const handle = await engine.enqueue(job.with())
    await running.opened
    expect((await engine.pauseJob(handle.id)).job.state).toBe('running')
    goOn.open()
    await until(async () => (await engine.job(handle.id))?.state === 'paused')
    expect(await engine.job(handle.id)).toMatchObject({ pausedFrom: 'queued', retryCount: 1 })
    await engine.resumeJob(handle.id)
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: 'resumed' })
  })

  test('a failed job is retried by hand; a tree is paused and resumed as a whole', async () => {
    let broken = true
    const child = defineJob(
      { type: named('child') },
      {
        maxRetries: 0,
        run() {
          if (broken) throw new Error('broken')
          return 'mended'
        },
      },
    )
    const parent = defineJob(
      { type: named('parent') },
      {
        ingest: (ctx) => ctx.spawn([child.with({}, { onChildFailure: 'fail_parent' })]),
        async aggregate(ctx) {
          for await (const one of ctx.children({ states: ['completed'] })) return one.result
        },
      },
    )
    const { engine } = await engineWith([child, parent])
    const handle = await engine.enqueue(parent.with())
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'failed', errorCode: 'CHILD_FAILED' })
    broken = false
    await expect(engine.retryJob(randomUUID())).rejects.toMatchObject({ code: 'NOT_FOUND' })
    expect(await engine.retryJob(handle.id, { descendants: true })).toMatchObject({ reopenedDescendants: 1 })
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'completed', result: 'mended' })

    const later = { runAt: new Date(Date.now() + 3_600_000) }
    const tree = await engine.enqueue(parent.with({}, { children: [child.with({}, later), child.with({}, later)] }))
    const states = async () => {
      const { rows } = await engines.database.pool.query(
        `select state from ${engines.database.schema}.job where tree_id = $1 order by depth, id`,
        [tree.id],
      )
      return rows.map((row) => row.state)
    }
    await engine.pauseJob(tree.id, { descendants: true })
    expect(await states()).toEqual(['paused', 'paused', 'paused'])
    await engine.resumeJob(tree.id, { descendants: true })
    expect(await states()).toEqual(['waiting', 'queued', 'queued'])
    await engine.cancelJob(tree.id)
  })
})
