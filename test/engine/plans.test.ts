import { afterAll, beforeAll, expect, it } from 'vitest'
import { transaction } from '../../src/db/transaction.ts'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { wakeParents } from '../../src/engine/wake.ts'
import { type ExecutedPlan, plansOf } from '../support/plans.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

/*
 * Statistics are taken when nothing is queued, runs or waits; then much does. Whatever the planner thinks that it knows,
 * a statement reads a few rows for each job that it is about.
 */

const JOBS = 1500
const BATCH = 400

let v: Verbs
beforeAll(async () => {
  v = await createVerbs()
  await v.enqueue(...Array.from({ length: JOBS }, () => ({ type: 'a' })))
  await sql(`update ${v.db.tables.job} set state = 'completed', finished_at = now(), version = version + 1`)
  await sql(`vacuum analyze ${v.db.tables.job}`)
})
afterAll(() => v.close())

const sql = (text: string, values: unknown[] = []) => v.test.pool.query(text, values)
const setAll = (assignments: string) => sql(`update ${v.db.tables.job} set ${assignments}, version = version + 1`)

function expectFewRows(plans: readonly ExecutedPlan[], names: readonly string[], each: number): void {
  expect(plans.map((plan) => plan.name)).toEqual(expect.arrayContaining([...names]))
  for (const plan of plans) expect(plan.read, plan.text).toBeLessThan(each * BATCH)
}

it('a claim, when the queue was empty at the last analyze', async () => {
  await setAll(`state = 'queued', finished_at = null`)
  const plans = await plansOf(
    v.db,
    async (db) => {
      const jobs = await claimJobs(db, { workerId: v.workerId, types: ['a'], queues: null, limit: BATCH })
      expect(jobs).toHaveLength(BATCH)
    },
    () => setAll(`state = 'queued'`),
  )
  // Twice as many candidates as wanted.
  expectFewRows(plans, ['claim.any-queue'], 8)
})

it('a settle, when nothing ran at the last analyze', async () => {
  await setAll(`state = 'queued'`)
  const held = await claimJobs(v.db, { workerId: v.workerId, types: ['a'], queues: null, limit: JOBS })
  const batch = held.slice(0, BATCH)
  const plans = await plansOf(
    v.db,
    async (db) => {
      const items = batch.map((job) => ({ job, outcome: { kind: 'completed', result: null } as const }))
      expect((await settle(db, items, { actor: 'test' })).settled).toHaveLength(BATCH)
    },
    () => setAll(`state = 'running', finished_at = null`),
  )
  expectFewRows(plans, ['settle.leaves'], 5)
})

it('a wake, when nobody waited at the last analyze', async () => {
  await setAll(`state = 'waiting', waiting_since = now(), child_count = 0, open_children = 0, phase = 'ingest'`)
  const { rows } = await sql(`select id from ${v.db.tables.job} order by id limit $1`, [BATCH])
  const candidates = rows.map(({ id }) => ({ id: id as string, assigneeId: null }))
  const plans = await plansOf(
    v.db,
    (db) =>
      transaction(db, async (tx) => {
        const outcomes = await wakeParents(tx, candidates, { source: 'edge', actor: 'test' })
        expect(outcomes.filter(({ outcome }) => outcome === 'woken')).toHaveLength(BATCH)
      }),
    () => setAll(`state = 'waiting', phase = 'ingest'`),
  )
  expectFewRows(plans, ['wake'], 6)
})
