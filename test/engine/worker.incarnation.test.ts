import { describe, expect, test } from 'vitest'
import { defineJob } from '../../src/index.ts'
import { createTestEngine } from '../support/engine.ts'
import { createGate } from '../support/gate.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()
const { engineWith } = engines

describe('a worker whose row is marked dead', () => {
  test('aborts with LEASE_LOST, takes a new identity, and goes on; the job runs again', async () => {
    const reasons: string[] = []
    const running = createGate()
    const job = defineJob(
      { type: named('lost') },
      {
        backoff: { initial: 1 },
        async run(ctx) {
          if (ctx.attempt > 1) return [ctx.attempt, ctx.retryCount]
          running.open()
          await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
          reasons.push((ctx.signal.reason as { code: string }).code)
          return 'nobody’s'
        },
      },
    )
    const { engine, events } = await engineWith([job])
    const handle = await engine.enqueue(job.with())
    await running.opened
    const { rows } = await engines.database.pool.query(
      `update ${engines.database.schema}.worker set dead_at = now() where dead_at is null returning id`,
    )
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'completed', result: [2, 1] })
    expect(reasons).toEqual(['LEASE_LOST'])
    const log = await events(handle.id)
    expect(log.find((event) => event.detail?.error)?.detail.error.code).toBe('LEASE_LOST')
    expect(log.at(-1)!.actor).not.toBe(`WK_${rows[0].id}`)
  })
})

describe('claims that never arrived', () => {
  test('are found by the heartbeat and put back, without a retry spent', async () => {
    const job = defineJob({ type: named('ghost') }, { run: (ctx) => [ctx.attempt, ctx.retryCount] })
    const { engine, events } = await engineWith([job], { heartbeat: 200 })
    // As a claim leaves it whose answer was lost on the way: RUNNING for this worker, which knows nothing of it.
    const handle = await engine.enqueue(job.with({}, { runAt: new Date(Date.now() + 60_000) }))
    await engines.database.pool.query(
      `with claimed as (
         update ${engines.database.schema}.job set state = 'running', worker_id = (select id from ${engines.database.schema}.worker where dead_at is null),
           claim_token = gen_random_uuid(), attempt = attempt + 1, version = version + 1, claimed_at = now()
         where id = $1 returning *)
       insert into ${engines.database.schema}.job_event (kind, job_id, tree_id, type, "from", "to", phase, wave, attempt, version, actor)
       select 'moved', id, tree_id, type, 'queued', 'running', phase, wave, attempt, version, 'test' from claimed`,
      [handle.id],
    )
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'completed', result: [2, 0] })
    expect((await events(handle.id)).map((event) => event.reason)).toContain('claim lost on its way to the worker')
  })
})

describe('a schema that has become newer', () => {
  test('drains the worker and is fatal', async () => {
    const running = createGate()
    const goOn = createGate()
    const job = defineJob(
      { type: named('old') },
      {
        async run() {
          running.open()
          await goOn.opened
        },
      },
    )
    const own = await createTestEngine({ jobs: [job], heartbeat: 200, grace: 30_000 })
    try {
      const { engine, fatal, test } = own
      const handle = await engine.enqueue(job.with())
      await running.opened
      await test.pool.query(`insert into ${test.schema}.migration (version, name, checksum) values (9999, 'later', '')`)
      await until(() => !engine.running)
      expect(fatal).toEqual([])
      goOn.open()
      await until(() => fatal.length === 1)
      expect(fatal[0]).toMatchObject({ code: 'SCHEMA_TOO_NEW' })
      const { rows } = await test.pool.query(`select state from ${test.schema}.job where id = $1`, [handle.id])
      expect(rows[0].state).toBe('completed')
    } finally {
      await own.close()
    }
  })
})
