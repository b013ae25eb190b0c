import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { cancelJob, deleteJob } from '../../src/engine/cascade.ts'
import { NotFoundError, ParentGoneError } from '../../src/engine/errors.ts'
import { newJobId } from '../../src/engine/ids.ts'
import { pauseJob } from '../../src/engine/pause.ts'
import { prepareJobs } from '../../src/engine/prepare.ts'
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

const by = { actor: 'test' }

/** A parent with a child in each state, and a grandchild below the waiting one; by name. */
async function family(parent: object = {}) {
  const names = ['completed', 'failed', 'cancelled', 'running', 'paused', 'queued', 'waiting']
  const [id] = await v.enqueue({
    type: 'p',
    ...parent,
    children: names.map((name, index) =>
      name === 'waiting'
        ? { type: 'p', key: name, children: [{ type: 'c', key: 'grandchild' }] }
        : { type: 'a', key: name, priority: index },
    ),
  })
  const rows = (await v.test.pool.query('select id, key from coppice.job where tree_id = $1', [id])).rows
  const ids = Object.fromEntries(rows.map((row) => [row.key ?? 'parent', row.id])) as Record<string, string>
  const held = Object.fromEntries((await v.claim()).map((job) => [job.key, job]))
  await v.complete(held.completed!)
  await v.end(held.failed!, { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } })
  await cancelJob(v.db, ids.cancelled!, by)
  for (const name of ['paused', 'queued', 'grandchild']) {
    await v.end(held[name]!, { kind: 'requeue', delayMs: 3_600_000, reason: 'test' })
  }
  await pauseJob(v.db, ids.paused!, by)
  return { ids, held, id: id! }
}

const stateOf = async (id: string) => {
  const { state, cancel_reason, cancel_code } = await v.row(id)
  return [state, cancel_reason, cancel_code]
}

describe('delete', () => {
  it('cancels active descendants of every state and depth, and leaves terminal ones unchanged (case 31)', async () => {
    const { ids, id, held } = await family()
    const before = await Promise.all(['completed', 'failed', 'cancelled'].map((name) => v.row(ids[name]!)))
    const { cancelledDescendants, job } = await deleteJob(v.db, id, { ...by, reason: 'INC-1' })
    expect(cancelledDescendants).toBe(5)
    expect(job.id).toBe(id)
    expect(await v.row(id)).toBeUndefined()
    for (const name of ['running', 'paused', 'queued', 'waiting', 'grandchild']) {
      expect(await stateOf(ids[name]!), name).toEqual(['cancelled', 'parent job deleted', 'parent_deleted'])
    }
    expect(await Promise.all(['completed', 'failed', 'cancelled'].map((name) => v.row(ids[name]!)))).toEqual(before)
    const events = await v.test.pool.query(
      'select kind, "from", "to", reason from coppice.job_event where job_id = $1',
      [id],
    )
    expect(events.rows.at(-1)).toEqual({ kind: 'deleted', from: 'waiting', to: null, reason: 'INC-1' })

    // Case 34: the running child reports its result all the same.
    expect((await v.complete(held.running!)).stale).toEqual([ids.running])
    expect((await v.row(ids.running!)).state).toBe('cancelled')
  })

  it('of five parents of three children each, in parallel, while their children settle (case 32)', async () => {
    const ids = await v.enqueue(
      ...Array.from({ length: 5 }, () => ({ type: 'p', children: [{ type: 'a' }, { type: 'a' }, { type: 'a' }] })),
    )
    const held = (await v.claim()).filter((job) => ids.includes(job.parentId!))
    expect(held).toHaveLength(15)
    await Promise.all([...ids.map((id) => deleteJob(v.db, id, by)), ...held.slice(0, 8).map((job) => v.complete(job))])
    const rows = await v.test.pool.query('select state from coppice.job where parent_id = any($1)', [ids])
    expect(rows.rows).toHaveLength(15)
    expect(rows.rows.every(({ state }) => state === 'cancelled' || state === 'completed')).toBe(true)
    expect((await v.test.pool.query('select 1 from coppice.job where id = any($1)', [ids])).rows).toEqual([])
  })

  it('races a spawn at depth 3: nobody escapes (case 33)', async () => {
    for (let round = 0; round < 20; round++) {
      const [root] = await v.enqueue({
        type: 'p',
        children: [{ type: 'p', children: [{ type: 'p', children: [{ type: 'b' }] }] }],
      })
      const leaf = (await v.claim()).find((job) => job.treeId === root && job.depth === 3)!
      const [spawned] = await Promise.all([
        v.spawn(
          leaf,
          Array.from({ length: 10 }, () => ({ type: 'c' })),
        ),
        round % 2 === 0 ? deleteJob(v.db, root!, by) : sleep(2).then(() => deleteJob(v.db, root!, by)),
      ])
      const rows = (await v.test.pool.query('select depth, state from coppice.job where tree_id = $1', [root])).rows
      expect(rows.every((row) => row.state === 'cancelled')).toBe(true)
      // Either all ten were there in time to be cancelled, or none was written.
      expect(rows.filter((row) => row.depth === 4)).toHaveLength(spawned.settled.length === 1 ? 10 : 0)
    }
  })

  it('of a job that is not there is an error', async () => {
    await expect(deleteJob(v.db, newJobId(), by)).rejects.toThrow(NotFoundError)
  })
})

describe('orphans', () => {
  it('are cancelled when their parent completes, or fails, with them active (case 36)', async () => {
    const ends = [
      ['completed', 'parent_completed', { kind: 'completed', result: null }],
      ['failed', 'parent_failed', { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } }],
    ] as const
    for (const [state, code, outcome] of ends) {
      const { ids, id } = await family()
      const parent = await forceRunning(id)
      expect((await v.end(parent, outcome)).settled).toEqual([id])
      expect((await v.row(id)).state).toBe(state)
      for (const name of ['running', 'paused', 'queued', 'waiting', 'grandchild']) {
        expect(await stateOf(ids[name]!), name).toEqual(['cancelled', 'parent job completed', code])
      }
      expect(await v.row(id)).toMatchObject({ open_children: 0, child_count: 7 })
    }
  })

  it('go on under orphan policy KEEP (case 36)', async () => {
    const { ids, id, held } = await family({ orphanPolicy: 'keep' })
    const parent = await forceRunning(id)
    await v.complete(parent)
    expect(await v.row(id)).toMatchObject({ state: 'completed', open_children: 4 })
    expect(await stateOf(ids.running!)).toEqual(['running', null, null])
    await v.complete(held.running!)
    expect(await v.row(id)).toMatchObject({ state: 'completed', open_children: 3 })
    await deleteJob(v.db, id, by)
    expect(await stateOf(ids.grandchild!)).toEqual(['cancelled', 'parent job deleted', 'parent_deleted'])
  })

  it('are cancelled with a parent that is cancelled', async () => {
    const { ids, id } = await family()
    expect(await cancelJob(v.db, id, { ...by, reason: 'enough' })).toMatchObject({ cancelledDescendants: 5 })
    expect(await stateOf(id)).toEqual(['cancelled', 'enough', 'requested'])
    expect(await stateOf(ids.grandchild!)).toEqual(['cancelled', 'parent job cancelled', 'parent_cancelled'])
    await expect(cancelJob(v.db, id, by)).rejects.toMatchObject({ code: 'INVALID_STATE' })
  })

  /** Has the parent woken with its children open, as a wait timeout does, and claims it. */
  async function forceRunning(id: string) {
    const { wakeParent } = await import('../../src/engine/wake.ts')
    await wakeParent(v.db, id, { source: 'timeout', actor: 'test', forced: true })
    const receipt = await v.test.pool.query('select source, forced from coppice.wake_receipt where parent_id = $1', [
      id,
    ])
    expect(receipt.rows).toEqual([{ source: 'timeout', forced: true }])
    const job = (await v.claim()).find((claimed) => claimed.id === id)!
    expect(job).toMatchObject({ phase: 'aggregate', wave: 1 })
    return job
  }
})

describe('fail-fast', () => {
  it('fails the parent, cancels its children, and a sibling running on is harmless (case 37)', async () => {
    const [id] = await v.enqueue({
      type: 'p',
      children: [{ type: 'a', onChildFailure: 'fail_parent' }, { type: 'a' }, { type: 'p', children: [{ type: 'c' }] }],
    })
    const held = (await v.claim()).filter((job) => job.treeId === id)
    const [bad, good] = held.filter((job) => job.depth === 1) as [(typeof held)[0], (typeof held)[0]]
    const culprit = (await v.row(bad.id)).on_child_failure === 'fail_parent' ? bad : good
    const sibling = culprit === bad ? good : bad
    await v.end(culprit, { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } })
    expect(await v.row(id!)).toMatchObject({ state: 'failed', error_code: 'CHILD_FAILED', open_children: 0 })
    expect((await v.complete(sibling)).stale).toEqual([sibling.id])
    expect(await stateOf(sibling.id)).toEqual(['cancelled', 'parent job completed', 'parent_failed'])
    const moves = await v.test.pool.query(`select "to" from coppice.job_event where job_id = $1 and kind = 'moved'`, [
      id,
    ])
    expect(moves.rows).toEqual([{ to: 'failed' }])
  })

  it('climbs several levels', async () => {
    const policy = { onChildFailure: 'fail_parent' as const }
    const [id] = await v.enqueue({
      type: 'p',
      children: [
        {
          type: 'p',
          ...policy,
          children: [{ type: 'p', ...policy, children: [{ type: 'a', ...policy }, { type: 'b' }] }],
        },
      ],
    })
    const leaf = (await v.claim()).find((job) => job.treeId === id && job.type === 'a')!
    await v.end(leaf, { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } })
    const rows = (
      await v.test.pool.query(
        'select type, state, error_code from coppice.job where tree_id = $1 order by depth, type',
        [id],
      )
    ).rows
    expect(rows.map((row) => [row.type, row.state, row.error_code])).toEqual([
      ['p', 'failed', 'CHILD_FAILED'],
      ['p', 'failed', 'CHILD_FAILED'],
      ['p', 'failed', 'CHILD_FAILED'],
      ['a', 'failed', 'UNKNOWN'],
      ['b', 'cancelled', null],
    ])
  })

  it('is remembered while the parent runs its ingest, and applied when it would wait (case 4)', async () => {
    const [id] = await v.enqueue({ type: 'p' })
    const parent = await v.hold(id!)
    const children = await prepareJobs([{ type: 'a', onChildFailure: 'fail_parent' }])
    await spawnChildren(v.db, id!, children, by)
    const child = (await v.claim()).find((job) => job.parentId === id)!
    await v.end(child, { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } })
    expect(await v.row(id!)).toMatchObject({ state: 'running', failing_child_id: child.id })
    await v.spawn(parent, [{ type: 'b' }])
    expect(await v.row(id!)).toMatchObject({ state: 'failed', error_code: 'CHILD_FAILED', wave: 0 })
  })
})

describe('spawn', () => {
  it('for a parent that does not exist, or has ended, stores nothing (case 35)', async () => {
    const before = (await v.test.pool.query('select count(*) from coppice.job')).rows
    const children = await prepareJobs([{ type: 'a' }])
    await expect(spawnChildren(v.db, newJobId(), children, by)).rejects.toThrow(NotFoundError)
    const [id] = await v.enqueue({ type: 'p' })
    await v.complete(await v.hold(id!))
    await expect(spawnChildren(v.db, id!, children, by)).rejects.toThrow(ParentGoneError)
    const [gone] = await v.enqueue({ type: 'p' })
    const held = await v.hold(gone!)
    await deleteJob(v.db, gone!, by)
    expect((await v.spawn(held, [{ type: 'a' }])).stale).toEqual([gone])
    const after = (await v.test.pool.query('select count(*) from coppice.job')).rows
    expect(Number(after[0].count)).toBe(Number(before[0].count) + 1)
  })

  it('from outside onto a woken parent withdraws its wake', async () => {
    const [id] = await v.enqueue({ type: 'p', children: [] })
    expect(await v.row(id!)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1 })
    const children = await prepareJobs([{ type: 'a' }])
    await spawnChildren(v.db, id!, children, by)
    expect(await v.row(id!)).toMatchObject({ state: 'waiting', wave: 1, open_children: 1 })
    const child = (await v.claim()).find((job) => job.parentId === id)!
    expect((await v.complete(child)).woken).toEqual([id])
    expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 2, spawn_wave: 1 })
    await v.complete(await v.hold(id!))
  })
})
