import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Database } from '../../src/db/database.ts'
import { type Tx, transaction } from '../../src/db/transaction.ts'
import { setAssignee } from '../../src/engine/assignee.ts'
import type { ClaimedJob } from '../../src/engine/claim/claimed-job.ts'
import { EngineError } from '../../src/engine/errors.ts'
import type { NewJob, Outcome } from '../../src/engine/job.ts'
import { lockJobs, lockTreeShared } from '../../src/engine/locks.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { spawnChunk } from '../../src/engine/spawn-chunk.ts'
import { wakeParent, wakeParents } from '../../src/engine/wake.ts'
import { createRaces, type Races, wake } from '../support/races.ts'

// Where a wait begins or ends, while a child's end or another's wake gets in between.

const by = { actor: 'test' }
const completed: Outcome = { kind: 'completed', result: null }
const failed: Outcome = { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } }

let v: Races
beforeAll(async () => {
  v = await createRaces()
})
afterAll(() => v.close())

describe('the end of a phase that spawned, and the ends of children that run already (cases 10 and 11)', () => {
  interface Streaming {
    parent: ClaimedJob
    children: ClaimedJob[]
  }

  /** A parent in its ingest, with streamed children that run. */
  const streaming = async (children: NewJob[]): Promise<Streaming> => {
    const [id] = await v.enqueue({ type: 'p' })
    const parent = await v.hold(id!)
    const keyed = children.map((child, index) => ({ ...child, key: `k${index}` }))
    await spawnChunk(v.db, parent, await v.prepare(keyed), 'test')
    return { parent, children: await v.claim() }
  }
  const wait = (db: Database, { parent }: Streaming) =>
    settle(db, [{ job: parent, outcome: { kind: 'waiting', children: [] } }], by)
  const end =
    (outcome: Outcome) =>
    (db: Database, { children }: Streaming) =>
      settle(db, [{ job: children[0]!, outcome }], by)
  const wokenOnce = async (_: unknown, proof: unknown) => expect(proof).toMatchObject({ waits: 1, wakes: 1 })

  it('its only child', async () => {
    const found = await v.race({
      setup: () => streaming([{ type: 'a' }]),
      sessions: { wait, end: end(completed) },
      inTheEnd: wokenOnce,
    })
    expect(found.blocked).toBeGreaterThan(0)
  })

  it('each of its two children', async () => {
    await v.race({
      setup: () => streaming([{ type: 'a' }, { type: 'a' }]),
      sessions: {
        wait,
        one: end(completed),
        two: (db: Database, { children }) => settle(db, [{ job: children[1]!, outcome: completed }], by),
      },
      inTheEnd: wokenOnce,
    })
  })

  it('one of two, and more children come with the wait', async () => {
    await v.race({
      setup: async () => ({ ...(await streaming([{ type: 'a' }])), more: await v.prepare([{ type: 'b' }]) }),
      sessions: {
        wait: (db: Database, { parent, more }) =>
          settle(db, [{ job: parent, outcome: { kind: 'waiting', children: more } }], by),
        end: end(completed),
      },
      inTheEnd: wokenOnce,
    })
  })

  it('of two parents that begin to wait in one transaction', async () => {
    await v.race({
      setup: async () => {
        const first = await streaming([{ type: 'a' }])
        const [id] = await v.enqueue({ type: 'p' })
        return { ...first, other: await v.hold(id!) }
      },
      sessions: {
        wait: (db: Database, { parent, other }) =>
          settle(
            db,
            [parent, other].map((job) => ({ job, outcome: { kind: 'waiting', children: [] } as const })),
            by,
          ),
        end: end(completed),
      },
      inTheEnd: async (_, proof) => expect(proof).toMatchObject({ waits: 2, wakes: 2 }),
    })
  })

  it('the child fails, which its parent does not bear (case 4)', async () => {
    await v.race({
      setup: () => streaming([{ type: 'a', onChildFailure: 'fail_parent' }]),
      sessions: { wait, end: end(failed) },
      inTheEnd: async ({ parent }, proof) => {
        expect(await v.row(parent.id)).toMatchObject({ state: 'failed', error_code: 'CHILD_FAILED' })
        expect(proof.wakes).toBe(0)
      },
    })
  })
})

describe('several who wake one parent', () => {
  /** A parent all of whose children have settled, and whose wake was withheld. */
  const stuck = async (): Promise<{ parent: string }> => {
    await setAssignee(v.db, 'ann', 'paused', by)
    const [parent] = await v.enqueue({ type: 'p', assigneeId: 'ann', children: [{ type: 'a' }] })
    await v.complete(...(await v.claim()))
    await v.test.pool.query(`update coppice.assignee set status = 'active' where id = 'ann'`)
    expect(await v.row(parent!)).toMatchObject({ state: 'waiting', open_children: 0 })
    return { parent: parent! }
  }

  it('the edge and the reconciler deliver one wave once, with one receipt (case 20)', async () => {
    const sources = new Set<string>()
    await v.race({
      setup: async () => {
        const [parent] = await v.enqueue({ type: 'p', children: [{ type: 'a' }] })
        const [child] = await v.claim()
        return { parent: parent!, child: child! }
      },
      sessions: {
        edge: (db: Database, { child }) => settle(db, [{ job: child, outcome: completed }], by),
        reconciler: wake('reconciler'),
      },
      inTheEnd: async ({ parent }, proof) => {
        const [delivered] = await v.wakesOf(parent)
        expect(proof).toMatchObject({ waits: 1, wakes: 1 })
        expect(await v.receiptOf(parent)).toMatchObject({ wave: 1, operation_id: delivered!.operationId })
        sources.add(delivered!.source)
      },
    })
    // The settle holds the parent's row until it has woken it: the reconciler finds nothing left to do.
    expect([...sources]).toEqual(['edge'])
  })

  it('two reconcilers and an activation: one delivers, the others find nothing (case 20)', async () => {
    const sources = new Set<string>()
    await v.race({
      setup: stuck,
      sessions: {
        reconciler: wake('reconciler'),
        manual: wake('manual'),
        activation: (db: Database) => setAssignee(db, 'ann', 'active', by),
      },
      inTheEnd: async ({ parent }, proof) => {
        expect(proof).toMatchObject({ waits: 1, wakes: 1 })
        const [delivered] = await v.wakesOf(parent)
        expect(await v.receiptOf(parent)).toMatchObject({
          wave: 1,
          source: delivered!.source,
          operation_id: delivered!.operationId,
        })
        sources.add(delivered!.source)
      },
    })
    expect(sources.size).toBeGreaterThan(1)
  })

  it('a wake that is rolled back leaves neither a receipt nor a move behind, and another one comes (case 22)', async () => {
    class Undone extends EngineError {
      readonly code = 'UNDONE'
    }
    const undo = (db: Database, { parent }: { parent: string }) =>
      transaction(db, async (tx: Tx) => {
        await lockTreeShared(tx, parent)
        const row = (await lockJobs(tx, [parent])).get(parent)
        if (row?.state !== 'waiting') return
        const [outcome] = await wakeParents(tx, [{ id: parent, assigneeId: 'ann' }], { source: 'edge', ...by })
        expect(outcome).toMatchObject({ outcome: 'woken', wave: 1 })
        throw new Undone('rolled back')
      })
    await v.race({
      setup: stuck,
      sessions: { undo },
      afterwards: async ({ parent }) => {
        expect(await v.row(parent)).toMatchObject({ state: 'waiting', phase: 'ingest', wave: 0 })
        expect(await v.receiptOf(parent)).toBeUndefined()
        expect(await v.wakesOf(parent)).toEqual([])
        await wakeParent(v.db, parent, { source: 'reconciler', ...by })
      },
    })
    const found = await v.race({
      setup: stuck,
      sessions: { undo, reconciler: wake('reconciler') },
      inTheEnd: async ({ parent }) => {
        const wakes = await v.wakesOf(parent)
        expect(wakes).toMatchObject([{ source: 'reconciler' }])
        expect(await v.receiptOf(parent)).toMatchObject({ wave: 1, operation_id: wakes[0]!.operationId })
      },
    })
    expect(Object.keys(found.ends).sort()).toEqual(['undo UNDONE, reconciler ok', 'undo ok, reconciler ok'])
  })
})
