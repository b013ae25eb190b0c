import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { treeBucket } from '../../src/engine/locks.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { findViolations } from '../support/invariants.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

let v: Verbs
beforeEach(async () => {
  v = await createVerbs()
})
afterEach(async () => {
  expect(await findViolations(v.test.pool)).toEqual([])
  await v.close()
})

const retry = { kind: 'retry', delayMs: 0, error: { message: 'again', code: 'NETWORK' } } as const

/** Parents that are claimed; in the order of their claims. */
async function holdParents(n: number) {
  await v.enqueue(...Array.from({ length: n }, () => ({ type: 'p' })))
  return v.claim(n)
}

async function fanOuts(held: Awaited<ReturnType<typeof holdParents>>, counts: readonly number[]) {
  return Promise.all(
    held.map(async (job, index) => {
      const children = await v.prepare(Array.from({ length: counts[index]! }, () => ({ type: 'c' })))
      return { job, outcome: { kind: 'waiting', children } as const }
    }),
  )
}

async function childrenOf(id: string) {
  const { rows } = await v.test.pool.query(
    'select tree_id, parent_wave, depth, state from coppice.job where parent_id = $1',
    [id],
  )
  return rows
}

describe('settling small fan-outs together', () => {
  it('writes the children of all in one transaction, and wakes one that spawned none', async () => {
    const held = await holdParents(3)
    const report = await settle(v.db, await fanOuts(held, [2, 0, 3]), { actor: 'test' })
    expect(report.settled.toSorted()).toEqual(held.map((job) => job.id).sort())
    expect(report.woken).toEqual([held[1]!.id])
    for (const [index, count] of [2, 0, 3].entries()) {
      const { id } = held[index]!
      const child = { tree_id: id, parent_wave: 1, depth: 1, state: 'queued' }
      expect(await childrenOf(id)).toEqual(Array(count).fill(child))
      expect(await v.row(id)).toMatchObject({ child_count: count, open_children: count, spawn_wave: 1 })
    }
    expect((await v.row(held[0]!.id)).state).toBe('waiting')
    expect(await v.row(held[1]!.id)).toMatchObject({ state: 'queued', phase: 'aggregate' })
    const { rows } = await v.test.pool.query(
      `select count(distinct xid)::int as n from coppice.job_event
       where kind = 'created' and parent_id is not null or "to" = 'waiting'`,
    )
    expect(rows).toEqual([{ n: 1 }])
  })

  it('refuses the one that lost its job, and settles the others', async () => {
    const held = await holdParents(3)
    const lost = held[1]!
    await v.end(lost, retry)
    const [taken] = await v.claim(1)
    const report = await settle(v.db, await fanOuts(held, [2, 2, 2]), { actor: 'test' })
    expect(report.stale).toEqual([lost.id])
    expect(report.settled).toHaveLength(2)
    expect(await childrenOf(lost.id)).toEqual([])
    expect(await v.row(lost.id)).toMatchObject({ state: 'running', claim_token: taken!.claimToken, child_count: 0 })
  })

  it('fails the one whose children PostgreSQL refuses, and settles the others', async () => {
    const held = await holdParents(5)
    const items = await fanOuts(held, [1, 1, 1, 1, 1])
    const bad = items[3]!
    const spoilt = bad.outcome.children.map((child) => ({ ...child, payload: '"\\u0000"' }))
    const report = await settle(
      v.db,
      items.map((item) => (item === bad ? { job: item.job, outcome: { kind: 'waiting', children: spoilt } } : item)),
      { actor: 'test' },
    )
    expect(report.refused.map(({ id }) => id)).toEqual([bad.job.id])
    expect(await v.row(bad.job.id)).toMatchObject({ state: 'failed', error_code: 'VALIDATION', child_count: 0 })
    for (const { job } of items) {
      if (job !== bad.job) expect(await v.row(job.id)).toMatchObject({ state: 'waiting', open_children: 1 })
    }
  })

  it('pauses one that is to be paused, and keeps the results of phases that have them', async () => {
    const held = await holdParents(2)
    const [paused, plain] = held as [(typeof held)[0], (typeof held)[0]]
    await v.test.pool.query('update coppice.job set pause_requested = true where id = $1', [paused.id])
    const items = await fanOuts(held, [1, 1])
    await settle(
      v.db,
      items.map(({ job, outcome }) => ({ job, outcome: { ...outcome, result: { of: job.id } } })),
      { actor: 'test' },
    )
    expect(await v.row(paused.id)).toMatchObject({ state: 'paused', paused_from: 'waiting', open_children: 1 })
    expect(await v.row(plain.id)).toMatchObject({ state: 'waiting', result: { of: plain.id } })
  })

  it('lets one wait for its tree, the others not', async () => {
    const held = await holdParents(2)
    const [blocked, free] = held as [(typeof held)[0], (typeof held)[0]]
    const client = await v.test.pool.connect()
    await client.query('begin')
    await client.query('select pg_advisory_xact_lock($1, $2)', [v.db.lockSpace, treeBucket(blocked.treeId)])
    const settling = settle(v.db, await fanOuts(held, [1, 1]), { actor: 'test' })
    if (treeBucket(free.treeId) !== treeBucket(blocked.treeId)) {
      await expect.poll(async () => (await v.row(free.id)).state, { timeout: 10_000 }).toBe('waiting')
    }
    expect((await v.row(blocked.id)).state).toBe('running')
    await client.query('rollback')
    client.release()
    expect((await settling).settled).toHaveLength(2)
    expect((await v.row(blocked.id)).state).toBe('waiting')
  })
})
