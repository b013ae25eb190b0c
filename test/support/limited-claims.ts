import { afterAll, beforeAll, beforeEach, expect } from 'vitest'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import { ClaimLimits } from '../../src/engine/claim/claim-limits.ts'
import type { ClaimedJob } from '../../src/engine/claim/claimed-job.ts'
import { findViolations } from './invariants.ts'
import { createVerbs, type Verbs } from './verbs.ts'

/** How a claim differs from the usual. */
export interface Claiming {
  limit?: number
  queues?: string[] | null
  workerId?: string
  limits?: ClaimLimits
}

/** Verbs on a database that each test finds empty, and claims that heed limits: `a` one, `b` three, `c` none. */
export interface LimitedClaims {
  /** Not before the first test. */
  readonly v: Verbs
  /** Those of the worker that claims. */
  readonly limits: ClaimLimits
  /** Those of another worker. */
  fresh(): ClaimLimits
  claim(claiming?: Claiming): Promise<ClaimedJob[]>
  /** Empties the database. Rows that a test wrote without events have to go before the invariants are looked at. */
  empty(): Promise<void>
}

/** Sets them up for the tests of a file. In the end every invariant must hold. */
export function useLimitedClaims(): LimitedClaims {
  let v: Verbs
  let limits: ClaimLimits
  const fresh = () =>
    new ClaimLimits(
      new Map([
        ['a', 1],
        ['b', 3],
      ]),
    )
  const empty = async () => {
    await v.db.pool.query(`truncate ${v.db.tables.job}, ${v.db.tables.jobEvent} cascade`)
  }
  beforeAll(async () => {
    v = await createVerbs()
  })
  beforeEach(async () => {
    await empty()
    limits = fresh()
  })
  afterAll(async () => {
    expect(await findViolations(v.test.pool)).toEqual([])
    await v.close()
  })
  return {
    get v() {
      return v
    },
    get limits() {
      return limits
    },
    fresh,
    claim: ({ limit = 100, queues = null, workerId = v.workerId, limits: given = limits } = {}) =>
      claimJobs(v.db, { workerId, types: ['a', 'b', 'c'], queues, limit, limits: given }),
    empty,
  }
}

export const idsOf = (jobs: readonly ClaimedJob[]) => jobs.map((job) => job.id)
