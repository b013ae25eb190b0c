import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Database, openDatabase } from '../../src/db/database.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { findViolations } from '../support/invariants.ts'
import { runChaos } from './chaos.ts'

const seconds = Number(process.env.STRESS_SECONDS ?? 8)

let test: TestDatabase
let db: Database
beforeAll(async () => {
  test = await createTestDatabase()
  db = openDatabase({ connectionString: test.connectionString, poolSize: 24 })
})
afterAll(async () => {
  await db.close()
  await test.drop()
})

it(
  'keeps every invariant while every verb runs at random',
  async () => {
    const counts = await runChaos(db, { seconds, clients: 12, steerers: 6 })
    if (process.env.STRESS_SECONDS) console.log(counts)
    expect(await findViolations(test.pool, { atRest: true })).toEqual([])
    // A run in which a verb never happened would prove nothing about it.
    for (const verb of [
      'delete',
      'cancel',
      'pause',
      'resume',
      'archive',
      'unarchive',
      'spawn from outside',
      'chunk',
      'recover',
      'retry',
      'rerun',
    ]) {
      expect(counts[verb], verb).toBeGreaterThan(0)
    }
    expect(counts.woken).toBeGreaterThan(20)
  },
  (seconds + 120) * 1000,
)
