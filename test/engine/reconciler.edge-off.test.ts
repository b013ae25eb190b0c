import { afterAll, beforeAll, expect, it } from 'vitest'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import { enqueueJobs } from '../../src/engine/enqueue.ts'
import type { NewJob, Outcome } from '../../src/engine/job.ts'
import { prepareJobs } from '../../src/engine/prepare.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { findViolations } from '../support/invariants.ts'
import { createReconciler, withoutEdge } from '../support/reconciler.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

// Every wake at the edge is lost. The reconciler alone brings each tree to its end.

const TREES = 2000

let v: Verbs
let lossy: ReturnType<typeof withoutEdge>
beforeAll(async () => {
  v = await createVerbs()
  lossy = withoutEdge(v)
})
afterAll(async () => {
  await lossy.close()
  await v.close()
})

const actor = 'test'
const leaf: NewJob = { type: 'a' }

/** Trees of several shapes; those of `p` at the top without children spawn them. */
function tree(at: number): NewJob {
  const leaves = Array.from({ length: at % 4 }, () => leaf)
  switch (at % 5) {
    case 0:
      return { type: 'p' }
    case 1:
      return { type: 'p', children: leaves }
    case 2:
      return { type: 'p', children: [leaf, { type: 'p', children: leaves }] }
    case 3:
      return { type: 'p', children: [{ type: 'b', onChildFailure: 'fail_parent' }, ...leaves] }
    default:
      return { type: 'p', children: [{ type: 'b' }, { type: 'p', children: [{ type: 'p', children: [leaf] }] }] }
  }
}

async function outcomeOf(job: { type: string; phase: string; wave: number; id: string }): Promise<Outcome> {
  const turn = Number.parseInt(job.id.slice(-1), 16)
  if (job.type === 'b' && turn < 8) return { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } }
  if (job.type === 'p' && (job.phase === 'ingest' || (job.wave < 2 && turn < 3))) {
    return { kind: 'waiting', children: await prepareJobs(Array.from({ length: turn % 3 }, () => leaf)) }
  }
  return { kind: 'completed', result: null }
}

it('2,000 trees of all shapes complete with no wake at the edge, each parent woken once for each wait', async () => {
  const trees = await prepareJobs(Array.from({ length: TREES }, (_, at) => tree(at)))
  await enqueueJobs(lossy, trees, { actor })
  const reconciler = createReconciler(lossy, { limit: 500 })
  for (let idle = 0; idle < 2; ) {
    const jobs = await claimJobs(lossy, { workerId: v.workerId, types: ['a', 'b', 'p'], queues: null, limit: 500 })
    const items = await Promise.all(jobs.map(async (job) => ({ job, outcome: await outcomeOf(job) })))
    // While the reconciler looks on.
    await Promise.all([settle(lossy, items, { actor }), reconciler.tick()])
    const { stuck } = await reconciler.figures()
    const { rows } = await v.test.pool.query(`select from coppice.job where state = 'waiting' limit 1`)
    idle = jobs.length === 0 && stuck === 0 && rows.length === 0 ? idle + 1 : 0
  }
  expect(await findViolations(v.test.pool, { atRest: true })).toEqual([])
  const { rows } = await v.test.pool.query(`select source, count(*)::int as n from coppice.wake_receipt group by 1`)
  expect(rows.map((row) => row.source)).toEqual(['reconciler'])
  const { rows: roots } = await v.test.pool.query(
    `select state, count(*)::int as n from coppice.job where parent_id is null group by 1 order by 1`,
  )
  expect(roots.reduce((sum, row) => sum + row.n, 0)).toBe(TREES)
  expect(roots[0]).toMatchObject({ state: 'completed' })
  expect(roots[0].n).toBeGreaterThan(TREES / 2)
}, 120_000)
