import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Database } from '../../src/db/database.ts'
import { setAssignee } from '../../src/engine/assignee.ts'
import { cancelJob, deleteJob } from '../../src/engine/cascade.ts'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import type { ClaimedJob } from '../../src/engine/claim/claimed-job.ts'
import type { Outcome } from '../../src/engine/job.ts'
import { pauseJob, resumeJob } from '../../src/engine/pause.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { spawnChildren } from '../../src/engine/spawn.ts'
import { spawnChunk } from '../../src/engine/spawn-chunk.ts'
import { createRaces, type Races } from '../support/races.ts'
import type { WakeProof } from '../support/wake-log.ts'

// A parent, or its assignee, is steered while its last child ends; a subtree goes while it grows.

const by = { actor: 'test' }
const completed: Outcome = { kind: 'completed', result: null }

let v: Races
beforeAll(async () => {
  v = await createRaces()
})
afterAll(() => v.close())

interface Family {
  parent: string
  last: ClaimedJob
}

/** A waiting parent whose one child runs. */
async function family(assigneeId?: string): Promise<Family> {
  const children = [{ type: 'a' }]
  const [parent] = await v.enqueue({ type: 'p', children, ...(assigneeId === undefined ? {} : { assigneeId }) })
  const [last] = await v.claim()
  return { parent: parent!, last: last! }
}

const end = (db: Database, { last }: Family) => settle(db, [{ job: last, outcome: completed }], by)
const wokenOnce = async (_: unknown, proof: WakeProof) => expect(proof).toMatchObject({ waits: 1, wakes: 1 })

describe('a waiting parent is paused and resumed while its last child ends', () => {
  const pause = (db: Database, { parent }: Family) => pauseJob(db, parent, by)
  const resume = (db: Database, { parent }: Family) => resumeJob(db, parent, by)

  it('pause', async () => {
    const found = await v.race({ setup: () => family(), sessions: { end, pause }, inTheEnd: wokenOnce })
    expect(Object.keys(found.ends)).toEqual(['end ok, pause ok'])
  })

  it('resume', async () => {
    const setup = async () => {
      const made = await family()
      await pauseJob(v.db, made.parent, by)
      return made
    }
    const found = await v.race({ setup, sessions: { end, resume }, inTheEnd: wokenOnce })
    expect(Object.keys(found.ends)).toEqual(['end ok, resume ok'])
  })

  it('both', async () => {
    const found = await v.race({ setup: () => family(), sessions: { end, pause, resume }, inTheEnd: wokenOnce })
    // A resume that comes before the pause is refused.
    expect(Object.keys(found.ends).sort()).toEqual([
      'end ok, pause ok, resume INVALID_STATE',
      'end ok, pause ok, resume ok',
    ])
  })

  it('with all its descendants', async () => {
    await v.race({
      setup: () => family(),
      sessions: {
        end,
        pause: (db: Database, { parent }) => pauseJob(db, parent, { ...by, descendants: true }),
        resume: (db: Database, { parent }) => resumeJob(db, parent, { ...by, descendants: true }),
      },
      inTheEnd: wokenOnce,
    })
  })
})

describe('an assignee changes while wakes are due', () => {
  const sets = (status: 'active' | 'paused') => (db: Database) => setAssignee(db, 'ann', status, by)
  const withAssignee = (status: 'active' | 'paused') => async () => {
    await setAssignee(v.db, 'ann', status, by)
    return family('ann')
  }

  it('is set ACTIVE while a settle sees it paused (case 62)', async () => {
    let withheld = 0
    await v.race({
      setup: withAssignee('paused'),
      sessions: { end, activate: sets('active') },
      // At once, by one or the other: not when somebody looks.
      afterwards: async ({ parent }) => {
        expect(await v.row(parent)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1 })
        const { rows } = await v.test.pool.query(
          `select actor from coppice.job_event where job_id = $1 and detail ? 'operationId'`,
          [parent],
        )
        withheld += rows.length
      },
      inTheEnd: wokenOnce,
    })
    expect(withheld).toBeGreaterThan(0)
  })

  it('is set ACTIVE twice, by two', async () => {
    await v.race({
      setup: withAssignee('paused'),
      sessions: { end, one: sets('active'), two: sets('active') },
      afterwards: async ({ parent }) => expect(await v.row(parent)).toMatchObject({ state: 'queued', wave: 1 }),
      inTheEnd: wokenOnce,
    })
  })

  it('is paused: the wake has come by then, or comes when it is active again', async () => {
    const states = new Set<string>()
    await v.race({
      setup: withAssignee('active'),
      sessions: { end, pause: sets('paused') },
      afterwards: async ({ parent }) => {
        states.add((await v.row(parent)).state)
        expect((await setAssignee(v.db, 'ann', 'active', by)).woken.length).toBeLessThan(2)
      },
      inTheEnd: wokenOnce,
    })
    expect([...states].sort()).toEqual(['queued', 'waiting'])
  })

  it('has two parents, woken in the same instant: two wakes (case 19)', async () => {
    await v.race({
      setup: async () => {
        await setAssignee(v.db, 'ann', 'active', by)
        return { one: await family('ann'), two: await family('ann') }
      },
      sessions: {
        one: (db: Database, { one }) => end(db, one),
        two: (db: Database, { two }) => end(db, two),
      },
      afterwards: async ({ one, two }) => {
        for (const { parent } of [one, two]) expect(await v.row(parent)).toMatchObject({ state: 'queued', wave: 1 })
        const { rows } = await v.test.pool.query(
          'select count(distinct operation_id)::int as n from coppice.wake_receipt',
        )
        expect(rows).toEqual([{ n: 2 }])
      },
      inTheEnd: async (_, proof) => expect(proof).toMatchObject({ waits: 2, wakes: 2 }),
    })
  })

  it('has two parents, withheld, while a third session activates it (cases 19 and 62)', async () => {
    await v.race({
      setup: async () => {
        await setAssignee(v.db, 'ann', 'paused', by)
        return { one: await family('ann'), two: await family('ann') }
      },
      sessions: {
        one: (db: Database, { one }) => end(db, one),
        two: (db: Database, { two }) => end(db, two),
        activate: sets('active'),
      },
      afterwards: async ({ one, two }) => {
        for (const { parent } of [one, two]) expect(await v.row(parent)).toMatchObject({ state: 'queued', wave: 1 })
      },
      inTheEnd: async (_, proof) => expect(proof).toMatchObject({ waits: 2, wakes: 2 }),
    })
  })
})

describe('a parent is cancelled or deleted while its last child ends', () => {
  it.each([
    ['cancel', cancelJob],
    ['delete', deleteJob],
  ])('%s', async (_, verb) => {
    const wakes = new Set<number>()
    await v.race({
      setup: () => family(),
      sessions: { end, verb: (db: Database, { parent }) => verb(db, parent, by) },
      afterwards: async ({ parent, last }) => {
        expect((await v.row(parent))?.state ?? 'deleted').toBe(verb === cancelJob ? 'cancelled' : 'deleted')
        expect(['completed', 'cancelled']).toContain((await v.row(last.id)).state)
      },
      inTheEnd: async (_, proof) => void wakes.add(proof.wakes),
    })
    expect([...wakes].sort()).toEqual([0, 1])
  })
})

describe('a delete at the top and a spawn at depth 3: nobody escapes (case 33)', () => {
  /** p over p over a job that runs. */
  const deep = async () => {
    const [root] = await v.enqueue({ type: 'p', children: [{ type: 'p', children: [{ type: 'a' }] }] })
    const [spawner] = await v.claim()
    expect(spawner!.depth).toBe(2)
    const children = await v.prepare([
      { type: 'b', key: 'one' },
      { type: 'b', key: 'two' },
    ])
    return { root: root!, spawner: spawner!, children }
  }
  type Deep = Awaited<ReturnType<typeof deep>>
  const noneActive = async ({ root }: Deep) => {
    const { rows } = await v.test.pool.query(
      `select id, depth, state from coppice.job where tree_id = $1 and state not in ('completed', 'failed', 'cancelled')`,
      [root],
    )
    expect(rows).toEqual([])
  }
  const remove = (db: Database, { root }: Deep) => deleteJob(db, root, by)

  it('children that come with the end of a phase', async () => {
    const numbers = new Set<number>()
    await v.race({
      setup: deep,
      sessions: {
        delete: remove,
        spawn: (db: Database, { spawner, children }) =>
          settle(db, [{ job: spawner, outcome: { kind: 'waiting', children } }], by),
      },
      afterwards: async (world) => {
        await noneActive(world)
        const { rows } = await v.test.pool.query('select from coppice.job where depth = 3')
        numbers.add(rows.length)
      },
    })
    // Both orders were met: there in time to be cancelled, or never there.
    expect([...numbers].sort()).toEqual([0, 2])
  })

  it('a chunk of a stream', async () => {
    const found = await v.race({
      setup: deep,
      sessions: {
        delete: remove,
        spawn: (db: Database, { spawner, children }) => spawnChunk(db, spawner, children, 'test'),
      },
      afterwards: noneActive,
    })
    expect(Object.keys(found.ends).sort()).toEqual(['delete ok, spawn PARENT_GONE', 'delete ok, spawn ok'])
  })

  it('children added from outside', async () => {
    const found = await v.race({
      setup: deep,
      sessions: {
        delete: remove,
        spawn: (db: Database, { spawner, children }) => spawnChildren(db, spawner.id, children, by),
      },
      afterwards: noneActive,
    })
    expect(Object.keys(found.ends)).toContain('delete ok, spawn ok')
  })

  it('a claim of the one who would spawn', async () => {
    const found = await v.race({
      setup: async () => {
        const [root] = await v.enqueue({ type: 'p', children: [{ type: 'p', children: [{ type: 'a' }] }] })
        return { root: root!, children: await v.prepare([{ type: 'b' }]) }
      },
      sessions: {
        delete: (db: Database, { root }) => deleteJob(db, root, by),
        work: async (db: Database, { children }) => {
          const jobs = await claimJobs(db, { workerId: v.workerId, types: ['a'], queues: null, limit: 1 })
          await settle(
            db,
            jobs.map((job) => ({ job, outcome: { kind: 'waiting', children } })),
            by,
          )
        },
      },
      afterwards: (world) => noneActive(world as Deep),
    })
    expect(Object.keys(found.ends)).toEqual(['delete ok, work ok'])
  })
})
