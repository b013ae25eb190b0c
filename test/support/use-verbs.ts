import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest'
import { findViolations } from './invariants.ts'
import { createVerbs, type Verbs } from './verbs.ts'

/**
 * Verbs on a database that each test of the file (or of the suite around the call) finds empty. After each, every
 * invariant must hold. What it returns is not to be taken apart before the first test.
 */
export function useVerbs(): Verbs {
  const v = {} as Verbs
  beforeAll(async () => {
    Object.assign(v, await createVerbs())
  })
  beforeEach(async () => {
    const { job, jobEvent, wakeReceipt, wakeMark, assignee } = v.db.tables
    await v.test.pool.query(`truncate ${job}, ${jobEvent}, ${wakeReceipt}, ${wakeMark}, ${assignee}`)
  })
  afterEach(async () => {
    expect(await findViolations(v.test.pool)).toEqual([])
  })
  afterAll(() => v.close())
  return v
}
