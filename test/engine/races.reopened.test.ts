import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Database } from '../../src/db/database.ts'
import { failFailingParents } from '../../src/engine/cascade.ts'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import type { Outcome } from '../../src/engine/job.ts'
import { waitTimeouts } from '../../src/engine/maintenance/handlers/wait-timeouts.ts'
import { retryJob } from '../../src/engine/reopen.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { spawnChildren } from '../../src/engine/spawn.ts'
import { maintenanceContext } from '../support/maintenance.ts'
import { createRaces, type Races, wake } from '../support/races.ts'

// A child set that grows again, by a retry or from outside, while its parent is woken, claimed, failed or out of time.

const by = { actor: 'test' }
const completed: Outcome = { kind: 'completed', result: null }
const failed: Outcome = { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } }

let v: Races
beforeAll(async () => {
  v = await createRaces()
})
afterAll(() => v.close())

describe('a child set that grows again', () => {
  const oneLeft = async () => {
    const [parent] = await v.enqueue({ type: 'p', children: [{ type: 'a' }, { type: 'b' }] })
    const claimed = await v.claim()
    const failing = claimed.find((job) => job.type === 'a')!
    await v.end(failing, failed)
    return { parent: parent!, failed: failing.id, last: claimed.find((job) => job.type === 'b')! }
  }
  type OneLeft = Awaited<ReturnType<typeof oneLeft>>
  const end = (db: Database, { last }: OneLeft) => settle(db, [{ job: last, outcome: completed }], by)
  const retry = (db: Database, { failed }: OneLeft) => retryJob(db, failed, by)
  const claim = (db: Database) => claimJobs(db, { workerId: v.workerId, types: ['p'], queues: null, limit: 1 })

  it('a failed child is retried while the last one settles', async () => {
    const waves = new Set<number>()
    await v.race({
      setup: oneLeft,
      sessions: { end, retry },
      inTheEnd: async ({ parent }, proof) => {
        // Counted before the wake, or after it, which was withdrawn then.
        expect(proof.waits).toBe(proof.wakes)
        waves.add((await v.row(parent)).wave)
      },
    })
    expect([...waves].sort()).toEqual([1, 2])
  })

  it('a failed child is retried while its parent is woken and claimed (case 16)', async () => {
    const waves = new Set<number>()
    await v.race({
      setup: oneLeft,
      sessions: { end, retry, claim },
      inTheEnd: async ({ parent, failed: child }) => {
        const [row, wakes, receipt] = [await v.row(parent), await v.wakesOf(parent), await v.receiptOf(parent)]
        expect(await v.row(child)).toMatchObject({ state: 'completed', completion_epoch: 2 })
        // Each wave has a key of its own, and the receipt is the last one's.
        expect(new Set(wakes.map((one) => one.operationId)).size).toBe(row.wave)
        expect(receipt).toMatchObject({ wave: row.wave, operation_id: wakes.at(-1)!.operationId })
        waves.add(row.wave)
      },
    })
    expect(waves.size).toBeGreaterThan(1)
  })

  it('a failed child is retried while its parent, woken for it, is claimed (case 16)', async () => {
    const woken = async () => {
      const family = await oneLeft()
      await v.complete(family.last)
      expect(await v.row(family.parent)).toMatchObject({ state: 'queued', wave: 1 })
      return family
    }
    await v.race({
      setup: woken,
      sessions: { claim, retry },
      // Withdrawn, or running and waiting again where it would have ended: in either case, a second wave.
      inTheEnd: async ({ parent }) => {
        expect(await v.row(parent)).toMatchObject({ state: 'completed', wave: 2 })
      },
    })
  })

  it('a child is added from outside while the last one settles (case 21)', async () => {
    const waves = new Set<number>()
    await v.race({
      setup: async () => {
        const [parent] = await v.enqueue({ type: 'p', children: [{ type: 'b' }] })
        const [last] = await v.claim()
        return { parent: parent!, last: last!, more: await v.prepare([{ type: 'c' }]) }
      },
      sessions: {
        end: (db: Database, { last }) => settle(db, [{ job: last, outcome: completed }], by),
        spawn: (db: Database, { parent, more }) => spawnChildren(db, parent, more, by),
      },
      inTheEnd: async ({ parent }, proof) => {
        expect(proof.waits).toBe(proof.wakes)
        waves.add((await v.row(parent)).wave)
      },
    })
    expect([...waves].sort()).toEqual([1, 2])
  })

  it('children are added from outside while the reconciler wakes (case 21)', async () => {
    const found = await v.race({
      setup: async () => {
        const [parent] = await v.enqueue({ type: 'p', children: [{ type: 'b' }] })
        const [last] = await v.claim()
        return { parent: parent!, last: last!, more: await v.prepare([{ type: 'c' }]) }
      },
      sessions: {
        end: (db: Database, { last }) => settle(db, [{ job: last, outcome: completed }], by),
        spawn: (db: Database, { parent, more }) => spawnChildren(db, parent, more, by),
        reconciler: wake('reconciler'),
      },
      inTheEnd: async (_, proof) => expect(proof.waits).toBe(proof.wakes),
    })
    expect(Object.keys(found.ends)).toEqual(['end ok, spawn ok, reconciler ok'])
  })

  it('a child whose failure its parent does not bear is retried before the parent has failed', async () => {
    const ends = new Set<string>()
    await v.race({
      setup: async () => {
        const [parent] = await v.enqueue({ type: 'p', children: [{ type: 'a', onChildFailure: 'fail_parent' }] })
        const [child] = await v.claim()
        return { parent: parent!, child: child! }
      },
      sessions: {
        fail: (db: Database, { child }) => settle(db, [{ job: child, outcome: failed }], by),
        retry: (db: Database, { child }) => retryJob(db, child.id, by),
        // For whoever marked it and died.
        helper: (db: Database, { parent }) => failFailingParents(db, [parent], by),
      },
      inTheEnd: async ({ parent, child }, proof) => {
        const { state } = await v.row(parent)
        expect((await v.row(child.id)).state).toBe(state)
        expect(proof.wakes).toBe(state === 'completed' ? 1 : 0)
        ends.add(state)
      },
    })
    expect([...ends].sort()).toEqual(['completed', 'failed'])
  })

  it.each(['aggregate', 'fail'] as const)('a wait that took too long ends, not the one after it (%s)', async (then) => {
    const waves = new Set<number>()
    await v.race({
      setup: async () => {
        const timeouts = { wait: '1h', onWaitTimeout: then }
        const [parent] = await v.enqueue({ type: 'p', timeouts, children: [{ type: 'a' }] })
        await v.test.pool.query(`update coppice.job set waiting_since = now() - interval '2 h' where id = $1`, [parent])
        const [last] = await v.claim()
        return { parent: parent!, last: last!, more: await v.prepare([{ type: 'c' }]) }
      },
      sessions: {
        timeout: (db: Database) => waitTimeouts(1000).run(maintenanceContext(db)),
        again: async (db: Database, { last, more }) => {
          await settle(db, [{ job: last, outcome: completed }], by)
          const jobs = await claimJobs(db, { workerId: v.workerId, types: ['p'], queues: null, limit: 1 })
          await settle(
            db,
            jobs.map((job) => ({ job, outcome: { kind: 'waiting', children: more } })),
            by,
          )
        },
      },
      inTheEnd: async ({ parent }) => {
        const { rows } = await v.test.pool.query(
          `select wave, reason from coppice.job_event where job_id = $1
           and (detail ->> 'forced' = 'true' or detail -> 'error' ->> 'code' = 'TIMEOUT')`,
          [parent],
        )
        // Only the first wait was overdue.
        expect(rows.filter((row) => row.wave > (then === 'aggregate' ? 1 : 0))).toEqual([])
        waves.add((await v.row(parent)).wave)
      },
    })
    expect(waves.has(2)).toBe(true)
  })
})
