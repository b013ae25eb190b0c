import { describe, expect, it } from 'vitest'
import type { NewJob } from '../../src/engine/job.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { insist } from '../../src/engine/worker/insist.ts'
import type { SettleFate } from '../../src/engine/worker/settler.ts'
import { defineJob } from '../../src/index.ts'
import { createReconciler } from '../support/reconciler.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'
import { useVerbs } from '../support/use-verbs.ts'

// Rows that plain SQL has made such that PostgreSQL cannot count with them, or refuses every write of them.

const LEAST = -2147483648
const MOST = 2147483647

describe('verbs', () => {
  const v = useVerbs()

  const sql = (text: string, parameters: unknown[] = []) => v.test.pool.query(text, parameters)
  const family = (children = 2, more: Partial<NewJob> = {}): NewJob => ({
    type: 'p',
    ...more,
    children: Array.from({ length: children }, () => ({ type: 'a' })),
  })
  const no = { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } } as const

  describe.each([LEAST, MOST])('a parent that counts %i children', (counter) => {
    it('is settled by its children, and woken once', async () => {
      const [id] = await v.enqueue(family())
      await sql('update coppice.job set open_children = $2, child_count = $2 where id = $1', [id, counter])
      const held = await v.claim()
      expect(await v.complete(held[0]!)).toMatchObject({ settled: [held[0]!.id], refused: [], unsettled: [] })
      expect((await v.row(id!)).state).toBe('waiting')
      expect(await v.complete(held[1]!)).toMatchObject({ settled: [held[1]!.id], refused: [], unsettled: [] })
      const reconciler = createReconciler(v.db)
      await reconciler.tick()
      expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 1, open_children: 0 })
      await sql('update coppice.job set child_count = 2 where id = $1', [id])
    })

    it('is put right by the reconciler, marked or not', async () => {
      const [marked, unmarked] = await v.enqueue(family(), family())
      await sql('update coppice.job set open_children = $1, child_count = $1 where parent_id is null', [counter])
      await sql('insert into coppice.wake_mark (parent_id) values ($1)', [marked])
      await createReconciler(v.db).tick()
      for (const id of [marked!, unmarked!]) {
        expect(await v.row(id)).toMatchObject({ state: 'waiting', open_children: 2, child_count: 2 })
      }
    })

    it('is put right after its wake, which stands if no child is open', async () => {
      const [id] = await v.enqueue(family())
      await v.complete(...(await v.claim()))
      await sql('update coppice.job set open_children = $2 where id = $1', [id, counter])
      await sql('insert into coppice.wake_mark (parent_id) values ($1)', [id])
      await createReconciler(v.db).tick()
      expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 1, open_children: 0 })
    })
  })

  it.each(['lots', '99999999999', '10%%', '-1', ''])('a failure tolerance of %j is none', async (text) => {
    const [id] = await v.enqueue(family())
    const set = () => sql('update coppice.job set failure_tolerance = $2 where id = $1', [id, text])
    await expect(set()).rejects.toMatchObject({ code: '23514', constraint: 'job_failure_tolerance' })
    // As it may have been before there was a constraint.
    await sql('alter table coppice.job rename constraint job_failure_tolerance to removed')
    await sql('alter table coppice.job drop constraint removed')
    await set()
    const held = await v.claim()
    expect(await v.end(held[0]!, no)).toMatchObject({ settled: [held[0]!.id], refused: [], unsettled: [] })
    await sql(`update coppice.job set state = 'failed' where id = $1`, [held[1]!.id])
    await createReconciler(v.db).tick()
    expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 1, failing_child_id: null })
    await sql('update coppice.job set failure_tolerance = null')
    await sql(`alter table coppice.job
      add constraint job_failure_tolerance check (failure_tolerance ~ '^[0-9]{1,9}%?$') not valid`)
  })

  it.each(['version', 'attempt', 'retry_count', 'wave', 'spawn_wave', 'completion_epoch'])(
    '%s cannot be set where nothing can be added to it',
    async (column) => {
      const [id] = await v.enqueue({ type: 'a' })
      const set = sql(`update coppice.job set ${column} = $2 where id = $1`, [id, MOST])
      await expect(set).rejects.toMatchObject({ code: '23514', constraint: 'job_growing_numbers' })
    },
  )

  it('one parent whose row refuses every write leaves its child alone unsettled', async () => {
    const [poisoned, ...others] = await v.enqueue(family(1), family(1), family(1))
    const held = await v.claim()
    const bad = held.find((job) => job.parentId === poisoned)!
    await sql(`alter table coppice.job add constraint poison check (id <> '${poisoned}' or open_children = 1)`)
    const items = held.map((job) => ({ job, outcome: { kind: 'completed', result: null } as const }))
    const report = await settle(v.db, items, { actor: 'test' })
    expect(report.unsettled.map(({ id }) => id)).toEqual([bad.id])
    expect(report.settled).toHaveLength(2)
    expect(report.refused).toEqual([])
    for (const id of others) expect((await v.row(id)).state).toBe('queued')
    expect(await v.row(bad.id)).toMatchObject({ state: 'running', claim_token: bad.claimToken })
    await sql('alter table coppice.job drop constraint poison')
    expect((await v.complete(bad)).woken).toEqual([poisoned])
  })

  it('one parent that cannot be failed keeps no other from it', async () => {
    const child = { type: 'a', onChildFailure: 'fail_parent' } as const
    const [poisoned, fine] = await v.enqueue({ type: 'p', children: [child] }, { type: 'p', children: [child] })
    const held = await v.claim()
    await sql(`alter table coppice.job add constraint poison check (id <> '${poisoned}' or state <> 'failed')`)
    const report = await settle(
      v.db,
      held.map((job) => ({ job, outcome: no })),
      { actor: 'test' },
    )
    expect(report).toMatchObject({ refused: [], unsettled: [] })
    expect((await v.row(fine!)).state).toBe('failed')
    expect(await v.row(poisoned!)).toMatchObject({ state: 'waiting', open_children: 0 })
    await sql('alter table coppice.job drop constraint poison')
  })
})

describe('an end that is refused', () => {
  const outcome = { kind: 'completed', result: null } as const
  const at = AbortSignal.abort()

  it('is tried a few times, and then the job is put back for later', async () => {
    const asked: string[] = []
    const settleOne = async ({ kind }: { kind: string }): Promise<SettleFate> => {
      asked.push(kind)
      return 'unsettled'
    }
    expect(await insist(settleOne, outcome, at)).toBe('unsettled')
    expect(asked).toEqual(['completed', 'completed', 'completed', 'requeue'])
  })

  it('is written at whichever try succeeds', async () => {
    let tries = 0
    expect(await insist(async () => (++tries < 3 ? 'unsettled' : 'settled'), outcome, at)).toBe('settled')
    expect(tries).toBe(3)
  })
})

describe('a worker', () => {
  const engines = useEngines()

  it('goes on when the end of one attempt cannot be written, and writes it once it can', async () => {
    const leaf = defineJob({ type: named('leaf') }, { run: () => 'done' })
    const { engine, fatal, log } = await engines.engineWith([leaf])
    const parent = await engine.enqueue({
      type: named('parent'),
      children: [{ type: leaf.type, runAt: new Date(Date.now() + 3_600_000) }],
    })
    const { pool, schema } = engines.database
    const refusal = `check (id <> '${parent.id}' or open_children = 1)`
    await pool.query(`alter table ${schema}.job add constraint poison ${refusal}`)
    await pool.query(`update ${schema}.job set run_at = now() where parent_id = $1`, [parent.id])
    await until(() => log.some((line) => line.level === 50 && line.msg.includes('refuses any end')), {
      what: 'the refusal to be logged',
    })
    const other = await engine.enqueue(leaf.with())
    expect((await engine.waitFor(other, deadline)).state).toBe('completed')
    expect(fatal).toEqual([])
    await pool.query(`alter table ${schema}.job drop constraint poison`)
    const { rows } = await pool.query(`select id from ${schema}.job where parent_id = $1`, [parent.id])
    expect((await engine.waitFor(rows[0].id, deadline)).state).toBe('completed')
    expect(fatal).toEqual([])
    await engine.cancelJob(parent.id)
  })
})
