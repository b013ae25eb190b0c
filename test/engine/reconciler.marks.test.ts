import { expect, it } from 'vitest'
import type { NewJob } from '../../src/engine/job.ts'
import { createReconciler, withoutEdge } from '../support/reconciler.ts'
import { until } from '../support/until.ts'
import { useVerbs } from '../support/use-verbs.ts'

// The marks of plain SQL that touches many parents.

const v = useVerbs()

const sql = (text: string, parameters: unknown[] = []) => v.test.pool.query(text, parameters)
const families = (count: number): NewJob[] =>
  Array.from({ length: count }, () => ({ type: 'p', children: [{ type: 'a' }] }))
const count = async (condition: string) =>
  (await sql(`select count(*)::int as n from coppice.job where ${condition}`)).rows[0].n as number
const marks = async () => (await sql('select count(*)::int as n from coppice.wake_mark')).rows[0].n as number
const wakeAll = async (reconciler: ReturnType<typeof createReconciler>) => {
  while ((await count(`state = 'waiting'`)) > 0) await reconciler.tick()
}

it('of 1,000 parents are followed in few ticks, and all that are due are counted as stuck until they are woken', async () => {
  await v.enqueue(...families(1000))
  await sql(`update coppice.job set state = 'completed' where parent_id is not null`)
  const reconciler = createReconciler(v.db)
  let ticks = 0
  while ((await marks()) > 0) {
    await reconciler.tick()
    ticks += 1
  }
  expect(ticks).toBeLessThan(6)
  expect(await count(`state = 'waiting' and open_children > 0`)).toBe(0)
  // A tick wakes at most its limit.
  expect(await count(`state = 'queued'`)).toBeLessThanOrEqual(100 * ticks)
  const waiting = await count(`state = 'waiting'`)
  expect(waiting).toBeGreaterThan(0)
  expect((await reconciler.figures()).stuck).toBe(waiting)
  await reconciler.tick()
  expect((await reconciler.figures()).stuck).toBe(waiting - 100)
  await sql(`delete from coppice.job`)
})

it('count as wakes of the same tick as candidates', async () => {
  const lossy = withoutEdge(v)
  try {
    await v.enqueue(...families(2))
    await lossy.complete(await v.claim())
    await sql(`update coppice.job set open_children = 0 where state = 'waiting'`)
    await v.enqueue(...families(5))
    await sql(`update coppice.job set state = 'completed' where state = 'queued'`)
    const reconciler = createReconciler(v.db, { limit: 3 })
    await reconciler.tick()
    expect(await reconciler.figures()).toMatchObject({ woken: 3, stuck: 4 })
    expect(await count(`state = 'queued'`)).toBe(3)
    await wakeAll(reconciler)
  } finally {
    await lossy.close()
  }
})

it('of a parent that cannot be looked at are left to the audit, and keep no other', async () => {
  const [poisoned, ...others] = await v.enqueue(...families(4))
  await sql(`update coppice.job set state = 'completed' where parent_id is not null`)
  await sql(`alter table coppice.job add constraint poison check (id <> '${poisoned}' or open_children = 1)`)
  const reconciler = createReconciler(v.db)
  await expect(reconciler.tick()).rejects.toThrow('poison')
  expect(await marks()).toBe(0)
  for (const id of others) expect(await v.row(id)).toMatchObject({ state: 'queued', wave: 1 })
  await sql('alter table coppice.job drop constraint poison')
  await reconciler.tick()
  expect(await v.row(poisoned!)).toMatchObject({ state: 'queued', wave: 1 })
})

it('of parents that others hold are followed once those let go', async () => {
  const ids = await v.enqueue(...families(3))
  await sql(`update coppice.job set state = 'completed' where parent_id is not null`)
  const client = await v.test.pool.connect()
  try {
    await client.query('begin')
    await client.query('select from coppice.job where id = $1 for update', [ids[1]])
    const ticking = createReconciler(v.db).tick()
    // The others do not wait for it: their marks are looked at first.
    const looked = async () => (await count(`state = 'waiting' and open_children = 0`)) === 2
    await until(looked, { what: 'the others to be looked at' })
    await client.query('commit')
    await ticking
  } finally {
    client.release()
  }
  for (const id of ids) expect(await v.row(id)).toMatchObject({ state: 'queued', wave: 1 })
})
