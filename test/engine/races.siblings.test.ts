import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Database } from '../../src/db/database.ts'
import { archiveJob } from '../../src/engine/archive.ts'
import { cancelJob, deleteJob, failJob } from '../../src/engine/cascade.ts'
import type { ClaimedJob } from '../../src/engine/claim/claimed-job.ts'
import type { NewJob, Outcome } from '../../src/engine/job.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { createRaces, type Races } from '../support/races.ts'

// The last children of a waiting parent end in transactions that overlap: it is woken once, by whichever is the last.

const by = { actor: 'test' }
const completed: Outcome = { kind: 'completed', result: null }
const failed: Outcome = { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } }

let v: Races
beforeAll(async () => {
  v = await createRaces()
})
afterAll(() => v.close())

interface Family {
  parent: string
  children: ClaimedJob[]
}

/** A waiting parent, and its children as they were claimed, in order of type. */
async function family(children: NewJob[], parent: Partial<NewJob> = {}): Promise<Family> {
  const [id] = await v.enqueue({ type: 'p', ...parent, children })
  const claimed = await v.claim()
  return { parent: id!, children: claimed.sort((one, other) => one.type.localeCompare(other.type)) }
}

const end =
  (position: number, outcome: Outcome = completed) =>
  (db: Database, { children }: Family) =>
    settle(db, [{ job: children[position]!, outcome }], by)

const wokenOnce = async (_: unknown, proof: { waits: number; wakes: number }) => {
  expect(proof).toMatchObject({ waits: 1, wakes: 1 })
}

describe('the last siblings end at once (case 5)', () => {
  it('two leaves', async () => {
    const found = await v.race({
      setup: () => family([{ type: 'a' }, { type: 'b' }]),
      sessions: { one: end(0), two: end(1) },
      inTheEnd: wokenOnce,
    })
    expect(found).toMatchObject({ exhaustive: true })
    expect(found.blocked).toBeGreaterThan(0)
  })

  it('three leaves, one of which fails', async () => {
    await v.race({
      setup: () => family([{ type: 'a' }, { type: 'b' }, { type: 'c' }]),
      sessions: { one: end(0), two: end(1, failed), three: end(2) },
      inTheEnd: wokenOnce,
    })
  })

  it('two that are parents themselves, each ending with its aggregate', async () => {
    const found = await v.race({
      setup: async () => {
        const [root] = await v.enqueue({ type: 'p', children: [childless('p'), childless('b')] })
        return { parent: root!, children: await v.claim() }
      },
      sessions: { one: end(0), two: end(1) },
      inTheEnd: async (_, proof) => expect(proof).toMatchObject({ waits: 3, wakes: 3 }),
    })
    expect(found.blocked).toBeGreaterThan(0)
  })

  it('a leaf and a parent', async () => {
    await v.race({
      setup: async () => {
        const [root] = await v.enqueue({ type: 'p', children: [{ type: 'a' }, childless('p')] })
        return { parent: root!, children: await v.claim() }
      },
      sessions: { one: end(0), two: end(1) },
      inTheEnd: async (_, proof) => expect(proof).toMatchObject({ waits: 2, wakes: 2 }),
    })
  })

  it('fifty in fifty transactions, unstepped', async () => {
    const { parent, children } = await family(Array.from({ length: 50 }, () => ({ type: 'a' })))
    const reports = await Promise.all(children.map((job) => v.complete(job)))
    expect(reports.flatMap((report) => report.woken)).toEqual([parent])
    expect(await v.row(parent)).toMatchObject({ state: 'queued', wave: 1 })
  })
})

/** Spawned nothing: it is to be claimed for its aggregate at once. */
function childless(type: string): NewJob {
  return { type, children: [] }
}

describe('one of the last two leaves by a verb while the other settles (cases 6 and 9)', () => {
  /** One child queued, or running, or waiting; the other one running. */
  const withOther = async (other: NewJob, run = false): Promise<Family & { other: string }> => {
    const [parent] = await v.enqueue({ type: 'p', children: [other, { type: 'a' }] })
    const claimed = await v.claim()
    const child = claimed.find((job) => job.type === 'a' && job.parentId === parent)!
    const { rows } = await v.test.pool.query(`select id, state from coppice.job where parent_id = $1 and id <> $2`, [
      parent,
      child.id,
    ])
    expect(rows[0].state).toBe(run ? 'running' : (other.children?.length ?? 0) > 0 ? 'waiting' : 'queued')
    return { parent: parent!, children: [child], other: rows[0].id }
  }
  const later = new Date(Date.now() + 3_600_000)
  const timedOut = { message: 'too long', code: 'TIMEOUT' } as const

  it.each([
    ['delete', deleteJob],
    ['cancel', cancelJob],
    ['archive', archiveJob],
  ])('%s of a queued child', async (_, verb) => {
    const found = await v.race({
      setup: () => withOther({ type: 'b', runAt: later }),
      sessions: { settle: end(0), leave: (db: Database, { other }) => verb(db, other, by) },
      inTheEnd: wokenOnce,
    })
    expect(Object.keys(found.ends)).toEqual(['settle ok, leave ok'])
  })

  it('delete of a running child whose own end comes too', async () => {
    const found = await v.race({
      setup: () => family([{ type: 'a' }]),
      sessions: { settle: end(0), delete: (db: Database, { children }) => deleteJob(db, children[0]!.id, by) },
      inTheEnd: wokenOnce,
    })
    expect(Object.keys(found.ends)).toEqual(['settle ok, delete ok'])
  })

  it('the wait of a child takes too long, and it fails', async () => {
    await v.race({
      setup: () => withOther({ type: 'p', children: [{ type: 'c', runAt: later }] }),
      sessions: {
        settle: end(0),
        timeout: (db: Database, { other }) => failJob(db, other, { ...by, why: () => timedOut, from: ['waiting'] }),
      },
      inTheEnd: async ({ parent }) => expect(await v.row(parent)).toMatchObject({ state: 'completed', wave: 1 }),
    })
  })

  it('both by verbs', async () => {
    await v.race({
      setup: () => family([{ type: 'a' }, { type: 'b' }]),
      sessions: {
        delete: (db: Database, { children }) => deleteJob(db, children[0]!.id, by),
        archive: (db: Database, { children }) => archiveJob(db, children[1]!.id, by),
      },
      inTheEnd: wokenOnce,
    })
  })
})

describe('a child whose failure its parent does not bear, and the last sibling (cases 4 and 37)', () => {
  it('fails the parent, whichever comes first', async () => {
    await v.race({
      setup: () => family([{ type: 'a', onChildFailure: 'fail_parent' }, { type: 'b' }]),
      sessions: { fail: end(0, failed), settle: end(1) },
      inTheEnd: async ({ parent }, proof) => {
        expect(await v.row(parent)).toMatchObject({ state: 'failed', error_code: 'CHILD_FAILED' })
        expect(proof.wakes).toBe(0)
      },
    })
  })
})
