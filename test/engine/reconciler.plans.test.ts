import { afterAll, beforeAll, expect, it } from 'vitest'
import type { Database } from '../../src/db/database.ts'
import { setAssignee } from '../../src/engine/assignee.ts'
import { plansOf } from '../support/plans.ts'
import { createReconciler } from '../support/reconciler.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

// A large table: nothing that a tick asks may read it from end to end, and what it reads has a bound.

const PARENTS = 20_000
const FINISHED = 100_000

let v: Verbs
beforeAll(async () => {
  v = await createVerbs()
  await sql(`
    insert into coppice.job (id, tree_id, type, state, finished_at, wave)
    select id, id, 'done', 'completed', now(), 1 from (select gen_random_uuid() id from generate_series(1, ${FINISHED})) one`)
  await sql(`
    insert into coppice.wake_receipt (parent_id, child_set_key, operation_id, wave, source)
    select id, 'key', 'operation', 1, 'edge' from coppice.job where type = 'done'`)
  await sql(`
    insert into coppice.job (id, tree_id, type, state, waiting_since, child_count, open_children, assignee_id)
    select id, id, 'p', 'waiting', now(), 2, 2, case when n % 10 = 0 then 'a' || n % 1000 end
    from (select gen_random_uuid() id, n from generate_series(1, ${PARENTS}) n) one`)
  await sql(`
    insert into coppice.job (id, tree_id, parent_id, parent_wave, depth, type)
    select gen_random_uuid(), p.id, p.id, 1, 1, 'a' from coppice.job p, generate_series(1, 2) where p.type = 'p'`)
  await sql(`insert into coppice.assignee (id, status) select 'a' || n, 'active' from generate_series(1, 1000) n`)
  await sql('vacuum analyze coppice.job, coppice.wake_receipt, coppice.assignee')
})
afterAll(() => v.close())

const sql = (text: string, parameters: unknown[] = []) => v.test.pool.query(text, parameters)

/** What a tick reads, in a state of the table that is made again for the plans. */
async function plansOfTick(prepare: () => Promise<unknown>) {
  await prepare()
  const tick = (db: Database) => createReconciler(db).tick()
  return plansOf(v.db, tick, prepare)
}

const SCAN = /Seq Scan (job|wake_receipt) /

it('with 20,000 parents waiting and none stuck: no table is read from end to end, and little of it (case 28)', async () => {
  const plans = await plansOfTick(async () => {})
  expect(plans.map((plan) => plan.name)).toEqual([
    'reconcile.first-look',
    'reconcile.find-assignees',
    'reconcile.find-candidates',
    'reconcile.read-audit-page',
  ])
  for (const plan of plans) expect(plan.text).not.toMatch(SCAN)
  const read = Object.fromEntries(plans.map((plan) => [plan.name, plan.read]))
  expect(read['reconcile.first-look']).toBeLessThan(5)
  expect(read['reconcile.find-assignees']! + read['reconcile.find-candidates']!).toBeLessThan(5)
  // 1,000 parents, and no more than three rows for the two children of each.
  expect(read['reconcile.read-audit-page']).toBeLessThan(4100)
})

it('with parents stuck, withheld, marked and miscounted: still none (case 28)', async () => {
  const plans = await plansOfTick(async () => {
    await sql(`update coppice.assignee set status = 'paused' where id > 'a5'`)
    await sql(`
      with due as (
        select p.id from coppice.job p
        where p.type = 'p' and (p.id in (select id from coppice.job where type = 'p' order by id limit 50) or p.assignee_id is not null)
      ),
      ended as (
        update coppice.job c set state = 'completed', version = c.version + 1 from due
        where c.parent_id = due.id and c.state <> 'completed'
      )
      update coppice.job p set state = 'waiting', wave = 0, waiting_since = now(), open_children = 0, version = p.version + 1
      from due where p.id = due.id`)
    await sql(`update coppice.job set open_children = 5 where id in
      (select id from coppice.job where state = 'waiting' order by waiting_since, id limit 5)`)
    await sql('truncate coppice.wake_mark')
    await sql(`insert into coppice.wake_mark (parent_id)
      select id from coppice.job where type = 'p' order by id desc limit 20`)
    await sql('analyze coppice.job, coppice.wake_receipt')
  })
  const names = new Set(plans.map((plan) => plan.name))
  for (const name of ['read-keys', 'read-marks', 'delete-marks', 'count-members', 'first-withheld']) {
    expect(names).toContain(`reconcile.${name}`)
  }
  expect(names).toContain('wake')
  for (const plan of plans) expect(plan.text).not.toMatch(SCAN)
})

it('what waits for an assignee is found without reading the table', async () => {
  const plans = await plansOf(
    v.db,
    (db) => setAssignee(db, 'a900', 'active', { actor: 'test' }),
    async () => {},
  )
  expect(plans.map((plan) => plan.name)).toContain('assignee.find-withheld')
  for (const plan of plans) expect(plan.text).not.toMatch(SCAN)
  for (const plan of plans.filter((one) => one.name === 'assignee.find-withheld')) expect(plan.read).toBeLessThan(101)
})
