import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { Database } from '../../src/db/database.ts'
import { transaction } from '../../src/db/transaction.ts'
import { archiveJob } from '../../src/engine/archive.ts'
import { setAssignee } from '../../src/engine/assignee.ts'
import { deleteJob } from '../../src/engine/cascade.ts'
import type { NewJob } from '../../src/engine/job.ts'
import { lockJobs } from '../../src/engine/locks.ts'
import { resumeJob } from '../../src/engine/pause.ts'
import { findDueParents } from '../../src/engine/reconcile/due-parents.ts'
import { retryJob } from '../../src/engine/reopen.ts'
import { wakeAtEdge, wakeParent } from '../../src/engine/wake.ts'
import { findViolations } from '../support/invariants.ts'
import { createReconciler, interrupted, operationIdOf, withoutEdge } from '../support/reconciler.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

let v: Verbs
let lossy: ReturnType<typeof withoutEdge>
beforeAll(async () => {
  v = await createVerbs()
  lossy = withoutEdge(v)
})
beforeEach(async () => {
  await v.test.pool.query(
    'truncate coppice.job, coppice.job_event, coppice.wake_receipt, coppice.assignee, coppice.wake_mark, coppice.maintenance',
  )
})
afterEach(async () => {
  expect(await findViolations(v.test.pool)).toEqual([])
})
afterAll(async () => {
  await lossy.close()
  await v.close()
})

const actor = 'test'
const sql = (text: string, parameters: unknown[] = []) => v.test.pool.query(text, parameters)
const family = (children = 1, more: Partial<NewJob> = {}): NewJob => ({
  type: 'p',
  ...more,
  children: Array.from({ length: children }, () => ({ type: 'a' })),
})
const receipts = async () =>
  (await sql('select parent_id, source, wave, operation_id from coppice.wake_receipt order by parent_id')).rows

/** Waiting parents all of whose children have completed, and whose wake was lost; the counter tells or does not. */
async function stuck(parents: readonly NewJob[], { counted = true } = {}): Promise<string[]> {
  const ids = await v.enqueue(...parents)
  await lossy.complete(await v.claim(1000))
  if (counted) await sql(`update coppice.job set open_children = 0 where state = 'waiting'`)
  return ids
}

describe('a lost wake', () => {
  it('is delivered by the next tick, with the operation id of the edge; the tick after finds nothing (case 24)', async () => {
    const [id] = await stuck([family(3)])
    const reconciler = createReconciler(v.db)
    await reconciler.tick()
    const { rows } = await sql('select id, state, completion_epoch as epoch from coppice.job where parent_id = $1', [
      id,
    ])
    const operationId = operationIdOf(id!, 1, rows)
    expect(await receipts()).toEqual([{ parent_id: id, source: 'reconciler', wave: 1, operation_id: operationId }])
    expect(await v.row(id!)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1, open_children: 0 })
    expect(await reconciler.figures()).toMatchObject({ candidates: 1, woken: 1, repaired: 0, stuck: 0 })
    await reconciler.tick()
    expect(await reconciler.figures()).toMatchObject({ candidates: 1, woken: 1, repaired: 0, stuck: 0 })
    const lines = reconciler.log.lines.filter((line) => line.msg === 'parent woken')
    expect(lines).toMatchObject([
      { level: 30, parent: `JB_${id}`, tree: `JB_${id}`, wave: 1, source: 'reconciler', operationId, openChildren: 0 },
    ])
    expect(lines[0]!.ms).toBeGreaterThan(0)
  })

  it('whose last child completed and was deleted is delivered by the next tick (case 6)', async () => {
    const [id] = await stuck([family(1)])
    const { rows } = await sql('select id from coppice.job where parent_id = $1', [id])
    await deleteJob(lossy, rows[0].id, { actor })
    expect(await v.row(id!)).toMatchObject({ state: 'waiting', child_count: 0 })
    await createReconciler(v.db).tick()
    expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 1 })
    expect(await receipts()).toMatchObject([{ source: 'reconciler', operation_id: operationIdOf(id!, 1, []) }])
  })

  it('has the same operation id when the edge delivers it', async () => {
    const { log, metrics } = createReconciler(v.db)
    const [id] = await v.enqueue(family(2))
    await v.complete(...(await v.claim()))
    expect((await metrics.wakeEmitted.get()).values).toMatchObject([{ labels: { source: 'edge' }, value: 1 }])
    expect(log.lines).toMatchObject([{ level: 20, msg: 'parent woken', parent: `JB_${id}`, source: 'edge', wave: 1 }])
    const { rows } = await sql('select id, state, completion_epoch as epoch from coppice.job where parent_id = $1', [
      id,
    ])
    expect((await receipts())[0]).toMatchObject({ source: 'edge', operation_id: operationIdOf(id!, 1, rows) })
  })

  it('is found by the audit in the same tick when the counter does not tell, too high or too low (case 29)', async () => {
    const ids = await stuck([family(2), family(2)], { counted: false })
    await sql('update coppice.job set open_children = case id when $1 then 7 else -3 end where id = any($2)', [
      ids[0],
      ids,
    ])
    const reconciler = createReconciler(v.db)
    await reconciler.tick()
    for (const id of ids) expect(await v.row(id)).toMatchObject({ state: 'queued', wave: 1, open_children: 0 })
    expect(await reconciler.figures()).toMatchObject({ woken: 2, repaired: 2 })
  })

  it('is told of only once its transaction has committed', async () => {
    const [id] = await stuck([family(1)])
    const { log, metrics } = createReconciler(v.db)
    const wake = (end: () => void) =>
      transaction(v.db, async (tx) => {
        await lockJobs(tx, [id!])
        expect(await wakeAtEdge(tx, [{ id: id!, assigneeId: null }], actor)).toEqual([id])
        expect(log.lines).toEqual([])
        end()
      })
    const fail = () => {
      throw new Error('rolled back')
    }
    await expect(wake(fail)).rejects.toThrow('rolled back')
    expect((await metrics.wakeEmitted.get()).values).toEqual([])
    await wake(() => {})
    expect(log.messages()).toEqual(['parent woken'])
  })

  it('by the limit of a wait is told of with what was open', async () => {
    const [id] = await v.enqueue(family(2))
    const { log, metrics } = createReconciler(v.db)
    await wakeParent(v.db, id!, { source: 'timeout', actor, forced: true })
    expect((await metrics.wakeEmitted.get()).values).toMatchObject([{ labels: { source: 'timeout' }, value: 1 }])
    expect(log.lines).toMatchObject([{ level: 30, source: 'timeout', openChildren: 2 }])
  })

  it('of one assignee is not merged with another: two parents, two wakes, however they are delivered (case 19)', async () => {
    const pair = () => [family(1, { assigneeId: 'ann' }), family(1, { assigneeId: 'ann' })]
    await setAssignee(v.db, 'ann', 'active', { actor })
    const byEdge = await v.enqueue(...pair())
    await v.complete(...(await v.claim()))
    const byReconciler = await stuck(pair())
    await createReconciler(v.db).tick()
    await setAssignee(v.db, 'ann', 'paused', { actor })
    const byActivation = await v.enqueue(...pair())
    await v.complete(...(await v.claim()))
    expect((await setAssignee(v.db, 'ann', 'active', { actor })).woken).toEqual(byActivation)
    const all = await receipts()
    expect(all.map((receipt) => receipt.parent_id).sort()).toEqual([...byEdge, ...byReconciler, ...byActivation].sort())
    expect(new Set(all.map((receipt) => receipt.operation_id)).size).toBe(6)
  })

  it('in a paused parent waits for the resume, which delivers it', async () => {
    const [id] = await stuck([family(1)])
    await sql(`update coppice.job set state = 'paused', paused_from = 'waiting' where id = $1`, [id])
    await createReconciler(v.db).tick()
    expect((await v.row(id!)).state).toBe('paused')
    await resumeJob(v.db, id!, { actor })
    expect((await receipts())[0]).toMatchObject({ parent_id: id, source: 'edge', wave: 1 })
  })
})

describe('a wrong counter', () => {
  it('of open children wakes nobody early and is put right, too high or too low (case 29)', async () => {
    const ids = await v.enqueue(family(2), family(2), family(2))
    const wrong = [0, 9, -1]
    for (const [at, id] of ids.entries()) {
      await sql('update coppice.job set open_children = $2 where id = $1', [id, wrong[at]])
    }
    const reconciler = createReconciler(v.db)
    await reconciler.tick()
    for (const id of ids) expect(await v.row(id)).toMatchObject({ state: 'waiting', open_children: 2 })
    expect(await reconciler.figures()).toMatchObject({ woken: 0, repaired: 3, stuck: 0 })
    await v.complete(...(await v.claim()))
    for (const id of ids) expect(await v.row(id)).toMatchObject({ state: 'queued', wave: 1 })
  })

  it('of more children than are compared exactly is left, as long as one is open', async () => {
    const [id] = await v.enqueue(family(1100))
    await sql('update coppice.job set open_children = 1050 where id = $1', [id])
    const reconciler = createReconciler(v.db)
    await reconciler.tick()
    expect((await v.row(id!)).open_children).toBe(1050)
    await sql('update coppice.job set open_children = 1000 where id = $1', [id])
    await reconciler.tick()
    expect((await v.row(id!)).open_children).toBe(1100)
    expect(await reconciler.figures()).toMatchObject({ repaired: 1 })
  })
})

describe('parents that may not be woken', () => {
  it('keep no other from its turn, however many there are and however old (case 23)', async () => {
    await setAssignee(v.db, 'paused', 'paused', { actor })
    const resting = await stuck([
      ...Array.from({ length: 4 }, () => family(1, { assigneeId: 'paused' })),
      ...Array.from({ length: 3 }, () => family(1, { assigneeId: 'dangling' })),
      ...Array.from({ length: 3 }, () => family(1, { ephemeral: true })),
    ])
    const [healthy] = await stuck([family(1)])
    const reconciler = createReconciler(v.db, { limit: 5 })
    await reconciler.tick()
    expect(await v.row(healthy!)).toMatchObject({ state: 'queued', wave: 1 })
    for (const id of resting) expect((await v.row(id)).state).toBe('waiting')
    // Two assignees: one probe each, whatever they hold up.
    expect(await reconciler.figures()).toMatchObject({ candidates: 1, woken: 1, unresolved: 2, stuck: 0 })
    const { parents } = await findDueParents(v.db, { limit: 100 })
    expect(parents.map(({ id, withheld }) => [id, withheld])).toEqual(
      resting.map((id, at) => [id, at < 4 ? 'assignee_inactive' : at < 7 ? 'assignee_unknown' : 'ephemeral']),
    )
    await setAssignee(v.db, 'paused', 'active', { actor })
    await setAssignee(v.db, 'dangling', 'active', { actor })
    await sql('update coppice.job set ephemeral = false')
    await reconciler.tick()
    for (const id of resting) expect((await v.row(id)).state).toBe('queued')
  })

  it('for their assignee are counted and told of once, and woken when it is active (case 26)', async () => {
    await setAssignee(v.db, 'ann', 'paused', { actor })
    const [id] = await stuck([family(1, { assigneeId: 'ann' })])
    const reconciler = createReconciler(v.db)
    await reconciler.tick()
    await reconciler.tick()
    expect(await receipts()).toEqual([])
    expect(await reconciler.figures()).toMatchObject({ unresolved: 2, woken: 0, stuck: 0 })
    expect(reconciler.log.lines).toMatchObject([
      { level: 40, count: 1, assignees: [{ id: 'ann', status: 'PAUSED', parents: [`JB_${id}`] }] },
    ])
    expect((await setAssignee(v.db, 'ann', 'active', { actor })).woken).toEqual([id])
    expect((await receipts())[0]).toMatchObject({ source: 'edge' })
    await reconciler.tick()
    expect(reconciler.log.messages().at(-1)).toBe('no wake is withheld any more')
  })

  it('because they are ephemeral have their counter put right; their assignee wakes them at once', async () => {
    await setAssignee(v.db, 'ann', 'paused', { actor })
    const [id] = await v.enqueue(family(1, { ephemeral: true, assigneeId: 'ann' }))
    await v.complete(...(await v.claim()))
    await sql('update coppice.job set open_children = 4 where id = $1', [id])
    const reconciler = createReconciler(v.db)
    await reconciler.tick()
    expect(await v.row(id!)).toMatchObject({ state: 'waiting', open_children: 0 })
    expect(await reconciler.figures()).toMatchObject({ repaired: 1, candidates: 0, unresolved: 0 })
    expect((await setAssignee(v.db, 'ann', 'active', { actor })).woken).toEqual([id])
  })

  it('race nobody: activation against a settle that sees the assignee paused wakes in any order (case 62)', async () => {
    let byActivation = 0
    for (let round = 0; round < 40; round++) {
      await setAssignee(v.db, 'bob', 'paused', { actor })
      const [id] = await v.enqueue(family(1, { assigneeId: 'bob' }))
      const held = await v.claim()
      const pause = () => new Promise((resolve) => setTimeout(resolve, Math.random() * 4))
      const [, { woken }] = await Promise.all([
        pause().then(() => v.complete(...held)),
        pause().then(() => setAssignee(v.db, 'bob', 'active', { actor })),
      ])
      byActivation += woken.length
      expect(await v.row(id!)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1 })
      await v.complete(...(await v.claim()))
    }
    expect(byActivation).toBeGreaterThan(0)
    expect(byActivation).toBeLessThan(40)
  })
})

describe('archived and deleted children', () => {
  it('do not count: the others decide, and an empty set is satisfied (case 25)', async () => {
    const [some, none, gone] = await v.enqueue(family(3), family(2), family(1))
    const childrenOf = async (id: string) =>
      (await sql('select id from coppice.job where parent_id = $1 order by id', [id])).rows.map(
        (row) => row.id as string,
      )
    const [first, ...rest] = await childrenOf(some!)
    await archiveJob(lossy, first!, { actor })
    for (const id of await childrenOf(none!)) await archiveJob(lossy, id, { actor })
    for (const id of await childrenOf(gone!)) await deleteJob(lossy, id, { actor })
    await createReconciler(v.db).tick()
    expect((await v.row(some!)).state).toBe('waiting')
    for (const id of [none!, gone!]) expect(await v.row(id)).toMatchObject({ state: 'queued', wave: 1 })
    const held = await v.claim()
    await lossy.complete(held.filter((job) => rest.includes(job.id)))
    await createReconciler(v.db).tick()
    expect(await v.row(some!)).toMatchObject({ state: 'queued', wave: 1 })
    const { rows } = await sql(`select id, state, completion_epoch as epoch from coppice.job where id = any($1)`, [
      rest,
    ])
    const receipt = (await receipts()).find((row) => row.parent_id === some)
    expect(receipt.operation_id).toBe(operationIdOf(some!, 1, rows))
  })
})

describe('somebody else', () => {
  it('who wakes the parent between the look and the lock makes one wake of it: deduplicated (case 20)', async () => {
    const [id] = await stuck([family(2)])
    const edge = () => wakeParent(v.db, id!, { source: 'edge', actor })
    const reconciler = createReconciler(interrupted(v.db, 'reconcile.read-keys', edge))
    await reconciler.tick()
    expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 1 })
    expect((await receipts()).map((receipt) => receipt.source)).toEqual(['edge'])
    expect(await reconciler.figures()).toMatchObject({ candidates: 1, deduplicated: 1, woken: 0, stuck: 0 })
  })

  it('at the very same moment, too: one wake, one receipt, whoever wins (case 20)', async () => {
    const ids = await stuck(Array.from({ length: 40 }, () => family(1)))
    const one = createReconciler(v.db)
    const other = createReconciler(lossy)
    await Promise.all([one.tick(), other.tick(), ...ids.map((id) => wakeParent(v.db, id, { source: 'edge', actor }))])
    for (const id of ids) expect(await v.row(id)).toMatchObject({ state: 'queued', wave: 1 })
    expect(await receipts()).toHaveLength(40)
    const [a, b] = [await one.figures(), await other.figures()]
    expect(a.deduplicated! + b.deduplicated! + a.woken! + b.woken!).toBe(a.candidates! + b.candidates!)
  })

  it('who reopens and ends a child between the look and the lock supersedes the wake; the next tick gives it', async () => {
    const [id] = await stuck([family(1)])
    const { rows } = await sql('select id from coppice.job where parent_id = $1', [id])
    const again = async () => {
      await retryJob(lossy, rows[0].id, { actor, rerun: true })
      await lossy.complete(await v.claim())
      await sql('update coppice.job set open_children = 0 where id = $1', [id])
    }
    const reconciler = createReconciler(interrupted(v.db, 'reconcile.read-keys', again))
    await reconciler.tick()
    expect((await v.row(id!)).state).toBe('waiting')
    expect(await reconciler.figures()).toMatchObject({ superseded: 1, woken: 0 })
    await reconciler.tick()
    const [receipt] = await receipts()
    const child = { id: rows[0].id, state: 'completed', epoch: 2 }
    expect(receipt).toMatchObject({ source: 'reconciler', wave: 1, operation_id: operationIdOf(id!, 1, [child]) })
  })
})

describe('a tick', () => {
  it('with nobody waiting is one cheap look (case 27)', async () => {
    await v.enqueue({ type: 'a' }, { type: 'a' })
    const asked: string[] = []
    const counting: Database = {
      ...v.db,
      query: (statement, parameters) => {
        asked.push(statement.name)
        return v.db.query(statement, parameters)
      },
    }
    await createReconciler(counting).tick()
    expect(asked).toEqual(['reconcile.first-look'])
  })

  it('wakes no more than its limit, oldest first, and goes on behind the last one', async () => {
    const ids = await stuck(Array.from({ length: 7 }, () => family(1)))
    const reconciler = createReconciler(v.db, { limit: 3 })
    const woken = async () =>
      (await sql(`select id from coppice.job where state = 'queued' order by id`)).rows.map((row) => row.id)
    await reconciler.tick()
    expect(await woken()).toEqual(ids.slice(0, 3))
    expect(await reconciler.figures()).toMatchObject({ stuck: 4 })
    await reconciler.tick()
    expect(await woken()).toEqual(ids.slice(0, 6))
    await reconciler.tick()
    expect(await woken()).toEqual(ids)
    expect(await reconciler.figures()).toMatchObject({ stuck: 0 })
  })

  /** While something is done, PostgreSQL refuses to wake these. */
  async function refusing(ids: readonly string[], act: () => Promise<unknown>): Promise<void> {
    await sql(`create function coppice.refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$`)
    await sql(`create trigger refuse before insert on coppice.wake_receipt for each row
      when (new.parent_id = any ('{${ids.join()}}'::uuid[])) execute function coppice.refuse()`)
    try {
      await act()
    } finally {
      await sql('drop function coppice.refuse cascade')
    }
    await createReconciler(v.db).tick()
  }

  it('is not kept by parents that fail again and again from waking those behind them', async () => {
    const ids = await stuck(Array.from({ length: 6 }, () => family(1)))
    await refusing(ids.slice(0, 2), async () => {
      const reconciler = createReconciler(v.db, { limit: 2 })
      await expect(reconciler.tick()).rejects.toThrow('no')
      expect(await reconciler.figures()).toMatchObject({ stuck: 6 })
      await reconciler.tick()
      await reconciler.tick()
      for (const id of ids.slice(2)) expect((await v.row(id)).state).toBe('queued')
    })
  })

  it('wakes those that can be woken, whatever the others in their transaction do', async () => {
    const ids = await stuck(Array.from({ length: 6 }, () => family(1)))
    await refusing([ids[3]!], async () => {
      const reconciler = createReconciler(v.db)
      await expect(reconciler.tick()).rejects.toThrow('no')
      expect(await reconciler.figures()).toMatchObject({ candidates: 6, woken: 5, stuck: 1 })
    })
  })

  it('reads a slice of the waiting parents, and finds a wrong one within a round, whose length it tells (case 28)', async () => {
    const ids = await v.enqueue(...Array.from({ length: 2500 }, () => family(1)))
    const last = ids.at(-1)!
    const [child] = (await sql('select id from coppice.job where parent_id = $1', [last])).rows
    await sql('alter table coppice.job disable trigger user')
    await sql(`update coppice.job set state = 'completed' where id = $1`, [child.id])
    await sql('alter table coppice.job enable trigger user')
    const reconciler = createReconciler(v.db)
    await reconciler.tick()
    await reconciler.tick()
    expect((await v.row(last)).state).toBe('waiting')
    expect((await reconciler.metrics.auditRound.get()).values[0]!.value).toBe(0)
    await reconciler.tick()
    expect(await v.row(last)).toMatchObject({ state: 'queued', wave: 1 })
    expect(await reconciler.figures()).toMatchObject({ woken: 1, repaired: 1 })
    expect((await reconciler.metrics.auditRound.get()).values[0]!.value).toBeGreaterThan(0)
    // A move that nobody told of has no event.
    await sql('delete from coppice.job_event where job_id in ($1, $2)', [child.id, last])
    await sql('delete from coppice.job where id in ($1, $2)', [child.id, last])
    await sql(`delete from coppice.job_event where kind = 'deleted'`)
  })

  it('finds parents that plain SQL let wait without an instant, behind the others', async () => {
    const ids = await v.enqueue(...Array.from({ length: 1500 }, () => family(1)))
    await sql('update coppice.job set waiting_since = null where id = any($1)', [ids.slice(0, 1400)])
    await lossy.complete((await v.claim(2000)).filter((job) => job.parentId === ids[1200]))
    const reconciler = createReconciler(v.db)
    // The hundred that have an instant, and the first nine hundred of the others.
    await reconciler.tick()
    expect(await reconciler.figures()).toMatchObject({ woken: 0, repaired: 0 })
    await reconciler.tick()
    expect(await reconciler.figures()).toMatchObject({ woken: 1, repaired: 1 })
    const { parents, next } = await findDueParents(v.db, { limit: 10 })
    expect([parents, next]).toEqual([[], null])
  })

  it('tells how long the oldest has waited', async () => {
    await v.enqueue(family(1), family(1))
    await sql(`update coppice.job set waiting_since = now() - interval '1 hour' where state = 'waiting'`)
    const reconciler = createReconciler(v.db)
    await reconciler.tick()
    expect((await reconciler.metrics.oldestWaiting.get()).values[0]!.value).toBeCloseTo(3600, -1)
  })
})

it('what is due is read page by page', async () => {
  const ids = await stuck(Array.from({ length: 5 }, () => family(1)))
  const first = await findDueParents(v.db, { limit: 3 })
  const second = await findDueParents(v.db, { limit: 3, after: first.next! })
  expect([...first.parents, ...second.parents].map((parent) => parent.id)).toEqual(ids)
  expect(first.parents[0]).toMatchObject({
    treeId: ids[0],
    type: 'p',
    openChildren: 0,
    assigneeId: null,
    withheld: null,
  })
  expect(second.next).toBe(null)
  await createReconciler(v.db).tick()
})
