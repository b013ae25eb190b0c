import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { archiveJob } from '../../src/engine/archive.ts'
import { setAssignee } from '../../src/engine/assignee.ts'
import { cancelJob, deleteJob } from '../../src/engine/cascade.ts'
import { pauseJob, resumeJob } from '../../src/engine/pause.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { spawnChildren } from '../../src/engine/spawn.ts'
import { findViolations } from '../support/invariants.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

let v: Verbs
beforeAll(async () => {
  v = await createVerbs()
})
afterAll(async () => {
  expect(await findViolations(v.test.pool)).toEqual([])
  await v.close()
})

const children = (n: number) => Array.from({ length: n }, () => ({ type: 'a' }))

/** A parent that waits, and its children, claimed. */
async function waitingParent(n: number, parent: object = {}, child: object = {}) {
  const [id] = await v.enqueue({ type: 'p', ...parent })
  await v.spawn(
    await v.hold(id!),
    children(n).map((c) => ({ ...c, ...child })),
  )
  const held = (await v.claim()).filter((job) => job.parentId === id)
  expect(held).toHaveLength(n)
  return { id: id!, held }
}

describe('the parent wakes', () => {
  it('when its only child completes: receipt and event in its transaction, nothing left to follow up (case 8)', async () => {
    const { id, held } = await waitingParent(1)
    expect(await v.row(id)).toMatchObject({ state: 'waiting', child_count: 1, open_children: 1, spawn_wave: 1 })
    const report = await v.complete(held[0]!)
    expect(report).toMatchObject({ settled: [held[0]!.id], woken: [id], stale: [] })
    expect(await v.row(id)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1, open_children: 0 })
    const receipt = (await v.test.pool.query('select * from coppice.wake_receipt where parent_id = $1', [id])).rows[0]
    expect(receipt).toMatchObject({ wave: 1, source: 'edge', forced: false, delivered_attempt: null })
    expect(receipt.operation_id).toMatch(new RegExp(`^job_children_completed:${id}:[0-9a-f]{64}$`))
    const { rows } = await v.test.pool.query(
      `select job_id, xid::text from coppice.job_event
       where job_id = any($1) and kind = 'moved' and "from" in ('running', 'waiting') and "to" <> 'waiting' order by id`,
      [[id, held[0]!.id]],
    )
    expect(rows.map((event) => event.job_id)).toEqual([held[0]!.id, id])
    expect(rows[1].xid).toBe(rows[0].xid)
    const again = await v.hold(id)
    expect(again).toMatchObject({ phase: 'aggregate', wave: 1 })
    const claimed = (await v.test.pool.query('select * from coppice.wake_receipt where parent_id = $1', [id])).rows[0]
    expect(claimed.delivered_attempt).toBe(again.attempt)
    // A later attempt at the same wake is not who it was delivered to.
    await v.end(again, { kind: 'retry', delayMs: 0, error: { message: 'again', code: 'NETWORK' } })
    const later = await v.hold(id)
    expect(later.attempt).toBeGreaterThan(again.attempt)
    const still = (await v.test.pool.query('select * from coppice.wake_receipt where parent_id = $1', [id])).rows[0]
    expect(still).toEqual(claimed)
    await v.complete(later)
  })

  it('at once with zero children (case 7)', async () => {
    const [id] = await v.enqueue({ type: 'p' })
    const report = await v.spawn(await v.hold(id!), [])
    expect(report.woken).toEqual([id])
    const [tree] = await v.enqueue({ type: 'p', children: [] })
    expect(await v.row(tree!)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1, skipped_ingest: true })
    await v.complete(...(await v.claim()))
  })

  it('when its last child fails for good and no policy was set (cases 1, 12)', async () => {
    const { id, held } = await waitingParent(2)
    for (const job of held) await v.end(job, { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } })
    expect(await v.row(id)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1 })
    await v.complete(await v.hold(id))
  })

  it('when the last open child is cancelled, deleted or archived (cases 6, 9)', async () => {
    for (const verb of [cancelJob, deleteJob, archiveJob]) {
      const { id, held } = await waitingParent(2)
      await v.complete(held[0]!)
      await verb(v.db, held[1]!.id, { actor: 'test' })
      expect(await v.row(id), verb.name).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1 })
      await v.complete(await v.hold(id))
    }
  })

  it('when a completed child is deleted before anyone looked (case 6)', async () => {
    const { id, held } = await waitingParent(2)
    await v.complete(held[0]!)
    await deleteJob(v.db, held[0]!.id, { actor: 'test' })
    expect(await v.row(id)).toMatchObject({ state: 'waiting', child_count: 1, open_children: 1 })
    expect((await v.complete(held[1]!)).woken).toEqual([id])
    await v.complete(await v.hold(id))
  })

  it('when the last siblings settle at the same moment in transactions of their own: once (case 5)', async () => {
    for (const n of [2, 50]) {
      const { id, held } = await waitingParent(n)
      const reports = await Promise.all(held.map((job) => v.complete(job)))
      expect(reports.flatMap((report) => report.woken)).toEqual([id])
      expect(await v.row(id)).toMatchObject({ state: 'queued', wave: 1, open_children: 0 })
      await v.complete(await v.hold(id))
    }
  })

  it('when a batch settles a parent that keeps its children and one of them together (case 53)', async () => {
    const [grand] = await v.enqueue({
      type: 'p',
      children: [{ type: 'b', orphanPolicy: 'keep', children: [] }],
    })
    const middle = (await v.claim()).find((job) => job.parentId === grand)!
    // A running aggregate with an open child of its own: one added from outside by hand.
    await v.test.pool.query(
      `with child as (insert into coppice.job (id, tree_id, parent_id, parent_wave, depth, type)
         select gen_random_uuid(), tree_id, id, 1, depth + 1, 'a' from coppice.job where id = $1 returning *),
       event as (insert into coppice.job_event (kind, job_id, tree_id, parent_id, type, "to", phase, wave, attempt, version, actor)
         select 'created', id, tree_id, parent_id, type, state, phase, wave, attempt, version, 'sql' from child)
       update coppice.job set child_count = child_count + 1, open_children = open_children + 1 where id = $1`,
      [middle.id],
    )
    const leaf = (await v.claim()).find((job) => job.parentId === middle.id)!
    const report = await settle(
      v.db,
      [
        { job: { ...middle, childCount: 1 }, outcome: { kind: 'completed', result: 1 } },
        { job: { ...leaf, childCount: 1 }, outcome: { kind: 'completed', result: 2 } },
      ],
      { actor: 'test' },
    )
    expect(report.settled.sort()).toEqual([middle.id, leaf.id].sort())
    expect(report.woken).toEqual([grand])
    expect(await v.row(middle.id)).toMatchObject({ state: 'completed', open_children: 0 })
    await v.complete(await v.hold(grand!))
  })
})

describe('children that end while their parent still runs', () => {
  /** A parent that runs its ingest, and children given to it from outside meanwhile, claimed. */
  async function runningParent(n: number) {
    const [id] = await v.enqueue({ type: 'p' })
    const parent = await v.hold(id!)
    await spawnChildren(v.db, id!, await v.prepare(children(n)), { actor: 'test' })
    const held = (await v.claim()).filter((job) => job.parentId === id)
    return { id: id!, parent, held }
  }

  it('all of them, before it begins to wait: woken at once, once (case 10)', async () => {
    const { id, parent, held } = await runningParent(3)
    expect((await v.complete(...held)).woken).toEqual([])
    expect((await v.spawn(parent, [])).woken).toEqual([id])
    expect(await v.row(id)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1 })
    await v.complete(await v.hold(id))
  })

  it('the last one at the very moment that it begins to wait: woken once, whoever comes first (case 11)', async () => {
    for (const first of ['child', 'parent'] as const) {
      const { id, parent, held } = await runningParent(1)
      // Both must have the parent's row, which another holds until both wait for it, in this order.
      const client = await v.test.pool.connect()
      await client.query('begin')
      await client.query('select 1 from coppice.job where id = $1 for update', [id])
      const waiters = async (n: number) => {
        const blocked = `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
        await expect.poll(async () => (await v.test.pool.query(blocked)).rowCount, { timeout: 10_000 }).toBe(n)
      }
      const acts = { child: () => v.complete(held[0]!), parent: () => v.spawn(parent, []) }
      const one = acts[first]()
      await waiters(1)
      const other = acts[first === 'child' ? 'parent' : 'child']()
      await waiters(2)
      await client.query('rollback')
      client.release()
      const reports = await Promise.all([one, other])
      expect(
        reports.flatMap((report) => report.woken),
        first,
      ).toEqual([id])
      expect(await v.row(id)).toMatchObject({ state: 'queued', wave: 1, open_children: 0 })
      await v.complete(await v.hold(id))
    }
  })

  it('leave a retried ingest to run again: it has yet to spawn its own', async () => {
    const { id, parent, held } = await runningParent(1)
    await v.end(parent, { kind: 'retry', delayMs: 0, error: { message: 'again', code: 'NETWORK' } })
    expect(await v.row(id)).toMatchObject({ state: 'queued', phase: 'ingest', retry_count: 1, open_children: 1 })
    const again = await v.hold(id)
    await v.complete(held[0]!)
    await v.spawn(again, [{ type: 'b' }])
    expect(await v.row(id)).toMatchObject({ state: 'waiting', child_count: 2, open_children: 1 })
    await v.complete(...(await v.claim()))
    await v.complete(await v.hold(id))
  })

  it('do not end it: where it would complete without having spawned, it waits for them', async () => {
    const { id, parent, held } = await runningParent(1)
    await v.end(parent, { kind: 'completed', result: 'early' })
    expect(await v.row(id)).toMatchObject({ state: 'waiting', open_children: 1 })
    expect((await v.complete(held[0]!)).woken).toEqual([id])
    await v.complete(await v.hold(id))
  })
})

describe('the parent does not wake', () => {
  it('for a child that is retried, snoozed or paused (case 13)', async () => {
    const { id, held } = await waitingParent(3)
    const open = async () => (await v.row(id)).open_children
    await v.end(held[0]!, { kind: 'retry', delayMs: 0, error: { message: 'again', code: 'NETWORK' } })
    expect(await open()).toBe(3)
    await v.end(held[1]!, { kind: 'requeue', delayMs: 0, reason: 'snooze' })
    expect(await open()).toBe(3)
    await pauseJob(v.db, held[2]!.id, { actor: 'test' })
    await v.end(held[2]!, { kind: 'retry', delayMs: 0, error: { message: 'again', code: 'NETWORK' } })
    expect(await v.row(held[2]!.id)).toMatchObject({ state: 'paused', retry_count: 1 })
    expect(await v.row(id)).toMatchObject({ state: 'waiting', wave: 0, open_children: 3 })
    const claimed = await v.claim()
    expect(claimed.map((job) => job.id).sort()).toEqual([held[0]!.id, held[1]!.id].sort())
    await resumeJob(v.db, held[2]!.id, { actor: 'test' })
    expect((await v.complete(...claimed, ...(await v.claim()))).woken).toEqual([id])
    await v.complete(await v.hold(id))
  })

  it('while it is paused: resume checks its wake at once', async () => {
    const { id, held } = await waitingParent(1)
    await pauseJob(v.db, id, { actor: 'test' })
    expect((await v.complete(held[0]!)).woken).toEqual([])
    expect(await v.row(id)).toMatchObject({ state: 'paused', paused_from: 'waiting', open_children: 0 })
    expect((await resumeJob(v.db, id, { actor: 'test' })).woken).toEqual([id])
    await v.complete(await v.hold(id))
  })

  it('while its assignee is not active: activation delivers at once', async () => {
    await setAssignee(v.db, 'ann', 'active', { actor: 'test' })
    const { id, held } = await waitingParent(1, { assigneeId: 'ann' })
    await setAssignee(v.db, 'ann', 'paused', { actor: 'test' })
    expect((await v.complete(held[0]!)).woken).toEqual([])
    expect(await v.row(id)).toMatchObject({ state: 'waiting', open_children: 0, wave: 0 })
    expect((await setAssignee(v.db, 'ann', 'active', { actor: 'test' })).woken).toEqual([id])
    await v.complete(await v.hold(id))
  })

  it('for a wake whose transaction rolls back: neither wake nor receipt is there (case 22)', async () => {
    const { id, held } = await waitingParent(1)
    await v.test.pool.query(`create function refuse() returns trigger language plpgsql as
      $$ begin raise exception 'no receipt' using errcode = '53400'; end $$`)
    await v.test.pool.query(
      'create trigger refuse before insert on coppice.wake_receipt for each row execute function refuse()',
    )
    await expect(v.complete(held[0]!)).rejects.toThrow('no receipt')
    expect(await v.row(held[0]!.id)).toMatchObject({ state: 'running' })
    expect(await v.row(id)).toMatchObject({ state: 'waiting', wave: 0, open_children: 1 })
    await v.test.pool.query('drop trigger refuse on coppice.wake_receipt')
    expect((await v.complete(held[0]!)).woken).toEqual([id])
    await v.complete(await v.hold(id))
  })

  it('for a counter that was set wrong by hand: it is put right, and the true last child wakes (case 29)', async () => {
    const { id, held } = await waitingParent(3)
    await v.test.pool.query('update coppice.job set open_children = 1 where id = $1', [id])
    expect((await v.complete(held[0]!)).woken).toEqual([])
    expect(await v.row(id)).toMatchObject({ state: 'waiting', open_children: 2 })
    expect((await v.complete(held[1]!, held[2]!)).woken).toEqual([id])
    await v.complete(await v.hold(id))
  })
})
