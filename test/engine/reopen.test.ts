import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { cancelJob, deleteJob } from '../../src/engine/cascade.ts'
import type { ClaimedJob } from '../../src/engine/claim/claimed-job.ts'
import { pauseJob, resumeJob } from '../../src/engine/pause.ts'
import { retryJob } from '../../src/engine/reopen.ts'
import { childSetOf } from '../support/child-set.ts'
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

const by = { actor: 'test' }
const no = { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } } as const

const receiptOf = async (id: string) =>
  (await v.test.pool.query('select * from coppice.wake_receipt where parent_id = $1', [id])).rows[0]
const movesOf = async (id: string) =>
  (
    await v.test.pool.query(
      `select "to" from coppice.job_event where job_id = $1 and kind = 'moved' order by version`,
      [id],
    )
  ).rows.map((row) => row.to)

/** A waiting parent with `n` held children. */
async function family(n = 2, parent: object = {}, child: object = {}) {
  const [id] = await v.enqueue({
    type: 'p',
    ...parent,
    children: Array.from({ length: n }, () => ({ type: 'a', ...child })),
  })
  const held = (await v.claim()).filter((job) => job.parentId === id)
  return { id: id!, held }
}
const retryOf = (job: ClaimedJob) => retryJob(v.db, job.id, by)
async function runChild(job: ClaimedJob) {
  const again = (await v.claim()).find((claimed) => claimed.id === job.id)!
  return v.complete(again)
}

describe('a child is reopened', () => {
  it('while its parent waits: counted, and waited for', async () => {
    const { id, held } = await family()
    await v.end(held[0]!, no)
    await retryOf(held[0]!)
    expect(await v.row(id)).toMatchObject({ state: 'waiting', open_children: 2 })
    await v.complete(held[1]!)
    expect((await runChild(held[0]!)).woken).toEqual([id])
    expect(await v.row(held[0]!.id)).toMatchObject({ state: 'completed', completion_epoch: 2, retry_count: 0 })
  })

  it('after its parent was woken and before it was claimed: the wake is withdrawn, the next is a new wave (case 16)', async () => {
    const { id, held } = await family(1)
    await v.end(held[0]!, no)
    const first = await receiptOf(id)
    expect(await v.row(id)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1 })
    await retryOf(held[0]!)
    expect(await v.row(id)).toMatchObject({ state: 'waiting', open_children: 1, wave: 1 })
    await runChild(held[0]!)
    const second = await receiptOf(id)
    expect(await v.row(id)).toMatchObject({ state: 'queued', wave: 2 })
    expect(second.child_set_key).not.toBe(first.child_set_key)
    expect(second).toMatchObject({ wave: 2, delivered_attempt: null })
    const parent = (await v.claim()).find((job) => job.id === id)!
    // The children of the wave it reads are still those it spawned.
    expect(parent).toMatchObject({ wave: 2, spawnWave: 1 })
    await v.complete(parent)
    expect(await movesOf(id)).toEqual(['queued', 'waiting', 'queued', 'running', 'completed'])
  })

  it('while its parent is paused from a wake: it will wait on resume', async () => {
    const { id, held } = await family(1)
    await v.end(held[0]!, no)
    await pauseJob(v.db, id, by)
    await retryOf(held[0]!)
    await resumeJob(v.db, id, by)
    expect(await v.row(id)).toMatchObject({ state: 'waiting', open_children: 1 })
    expect((await runChild(held[0]!)).woken).toEqual([id])
  })

  it('while its parent aggregates: the attempt goes on, and the parent waits again where it would complete', async () => {
    const { id, held } = await family(1)
    await v.end(held[0]!, no)
    const parent = (await v.claim()).find((job) => job.id === id)!
    await retryOf(held[0]!)
    expect(await v.row(id)).toMatchObject({ state: 'running', open_children: 1 })
    await v.end(parent, { kind: 'completed', result: { early: true } })
    expect(await v.row(id)).toMatchObject({ state: 'waiting', wave: 1, result: null })
    const kept = await v.test.pool.query(
      `select detail from coppice.job_event where job_id = $1 and "to" = 'waiting' order by id desc limit 1`,
      [id],
    )
    expect(kept.rows[0].detail).toEqual({ result: { early: true } })
    expect((await runChild(held[0]!)).woken).toEqual([id])
    expect(await v.row(id)).toMatchObject({ state: 'queued', wave: 2 })
    await v.complete((await v.claim()).find((job) => job.id === id)!)
  })

  it('and ends again while its parent aggregates: a new wave sees what it came to', async () => {
    const { id, held } = await family(1)
    await v.end(held[0]!, no)
    const parent = (await v.claim()).find((job) => job.id === id)!
    await retryOf(held[0]!)
    await runChild(held[0]!)
    expect((await v.complete(parent)).woken).toEqual([id])
    expect(await v.row(id)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 2 })
    await v.complete((await v.claim()).find((job) => job.id === id)!)
  })

  it('of a parent that has ended: refused; under KEEP it runs and the parent is untouched', async () => {
    const { id, held } = await family(1)
    await v.end(held[0]!, no)
    await v.complete((await v.claim())[0]!)
    await expect(retryOf(held[0]!)).rejects.toMatchObject({
      code: 'PARENT_GONE',
      message: expect.stringMatching(
        new RegExp(`^Parent JB_\\S+ is gone \\(\\w+\\): its child JB_${held[0]!.id} cannot be run again`),
      ),
    })
    await deleteJob(v.db, id, by)
    await expect(retryOf(held[0]!)).rejects.toMatchObject({ code: 'PARENT_GONE' })

    const keep = await family(1, { orphanPolicy: 'keep' })
    await v.end(keep.held[0]!, no)
    await v.complete((await v.claim())[0]!)
    const before = await v.row(keep.id)
    await retryOf(keep.held[0]!)
    await runChild(keep.held[0]!)
    expect(await v.row(keep.held[0]!.id)).toMatchObject({ state: 'completed' })
    expect({ ...(await v.row(keep.id)), updated_at: null }).toEqual({ ...before, updated_at: null })
  })

  it('and completes again within one second: a different key all the same (case 17)', async () => {
    const { id, held } = await family(2)
    await v.end(held[0]!, no)
    const first = await childSetOf(v.db, id)
    await retryOf(held[0]!)
    await v.end((await v.claim())[0]!, no)
    // The same wave and the same states: only the completion epoch tells.
    expect(await v.row(held[0]!.id)).toMatchObject({ state: 'failed', completion_epoch: 2 })
    const second = await childSetOf(v.db, id)
    expect([first!.wave, second!.wave]).toEqual([1, 1])
    expect(second!.key).not.toBe(first!.key)
    await v.complete(held[1]!)
    const receipt = await receiptOf(id)
    await retryOf(held[0]!)
    await v.end((await v.claim()).find((claimed) => claimed.id === held[0]!.id)!, no)
    expect((await receiptOf(id)).child_set_key).not.toBe(receipt.child_set_key)
  })

  it('is not what an edit of payload, priority or progress does: no wake, same key (case 18)', async () => {
    const { id, held } = await family(2)
    const edit = `update coppice.job set payload = '{"x":1}', priority = 9, progress = '{"current":1}',
      metadata = '{"title":"new"}', result = '1', checkpoint = '2' where id = $1`
    await v.complete(held[0]!)
    const before = await childSetOf(v.db, id)
    for (const job of held) await v.test.pool.query(edit, [job.id])
    expect(await childSetOf(v.db, id)).toEqual(before)
    expect((await v.row(id)).state).toBe('waiting')
    await v.complete(held[1]!)
    const receipt = await receiptOf(id)
    await v.test.pool.query(edit, [held[1]!.id])
    expect(await receiptOf(id)).toEqual(receipt)
    expect(await v.row(id)).toMatchObject({ state: 'queued', wave: 1 })
  })
})

describe('retry', () => {
  it('runs a failed job again in its phase, with its retries anew', async () => {
    const [id] = await v.enqueue({ type: 'a' })
    await v.end(await v.hold(id!), no)
    await retryJob(v.db, id!, { ...by, reason: 'INC-1' })
    expect(await v.row(id!)).toMatchObject({ state: 'queued', retry_count: 0, error: 'no', finished_at: null })
    await expect(retryJob(v.db, id!, by)).rejects.toMatchObject({ code: 'INVALID_STATE' })
    await v.complete(await v.hold(id!))
    await expect(retryJob(v.db, id!, by)).rejects.toMatchObject({ code: 'INVALID_STATE' })
    await retryJob(v.db, id!, { ...by, rerun: true })
    await v.complete(await v.hold(id!))
    expect(await v.row(id!)).toMatchObject({ state: 'completed', completion_epoch: 3 })
  })

  it('of a parent that ended while it waited does not run its ingest again (case 61)', async () => {
    const { id, held } = await family(3, {}, {})
    await v.complete(held[0]!)
    await cancelJob(v.db, id, by)
    expect((await v.row(held[1]!.id)).cancel_code).toBe('parent_cancelled')
    const { reopenedDescendants } = await retryJob(v.db, id, by)
    expect(reopenedDescendants).toBe(2)
    expect(await v.row(id)).toMatchObject({ state: 'waiting', phase: 'ingest', open_children: 2 })
    const again = await v.claim()
    expect(again.map((job) => job.id).sort()).toEqual([held[1]!.id, held[2]!.id].sort())
    expect((await v.complete(...again)).woken).toEqual([id])
    const parent = (await v.claim())[0]!
    expect(parent).toMatchObject({ id, phase: 'aggregate', wave: 1 })
  })

  it('leaves its children as they are where it is told to, and is woken at once', async () => {
    const { id, held } = await family(2)
    await v.complete(held[0]!)
    await cancelJob(v.db, id, by)
    const { reopenedDescendants, woken } = await retryJob(v.db, id, { ...by, children: 'none' })
    expect({ reopenedDescendants, woken }).toEqual({ reopenedDescendants: 0, woken: [id] })
    expect(await v.row(held[1]!.id)).toMatchObject({ state: 'cancelled', cancel_code: 'parent_cancelled' })
    expect(await v.row(id)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1 })
    await cancelJob(v.db, id, by)
    await expect(retryJob(v.db, id, { ...by, children: 'none', descendants: true })).rejects.toMatchObject({
      code: 'VALIDATION',
    })
  })

  it('with children none waits all the same for a child that it keeps and that is open', async () => {
    const [id] = await v.enqueue({ type: 'p', orphanPolicy: 'keep', children: [{ type: 'a' }] })
    await cancelJob(v.db, id!, by)
    expect(await retryJob(v.db, id!, { ...by, children: 'none' })).toMatchObject({ reopenedDescendants: 0, woken: [] })
    expect(await v.row(id!)).toMatchObject({ state: 'waiting', open_children: 1 })
    await v.complete(...(await v.claim()))
    expect(await v.row(id!)).toMatchObject({ state: 'queued', phase: 'aggregate' })
  })

  it('wakes at once a parent that waits again for nothing', async () => {
    const { id, held } = await family(1)
    await cancelJob(v.db, id, by)
    await deleteJob(v.db, held[0]!.id, by)
    expect((await retryJob(v.db, id, by)).woken).toEqual([id])
    expect(await v.row(id)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1 })
  })

  it('with descendants reopens those that failed or were cancelled with a parent, and their parents wait', async () => {
    const fast = { onChildFailure: 'fail_parent' as const }
    const [root] = await v.enqueue({
      type: 'p',
      children: [
        {
          type: 'p',
          key: 'middle',
          ...fast,
          children: [
            { type: 'a', key: 'bad', ...fast },
            { type: 'b', key: 'sibling' },
          ],
        },
        { type: 'c', key: 'asked' },
        { type: 'c', key: 'done' },
      ],
    })
    const held = Object.fromEntries((await v.claim()).map((job) => [job.key, job]))
    await v.complete(held.done!)
    await cancelJob(v.db, held.asked!.id, by)
    await v.end(held.bad!, no)
    const state = async () =>
      Object.fromEntries(
        (await v.test.pool.query('select key, state from coppice.job where tree_id = $1', [root])).rows.map((row) => [
          row.key ?? 'root',
          row.state,
        ]),
      )
    expect(await state()).toEqual({
      root: 'failed',
      middle: 'failed',
      bad: 'failed',
      sibling: 'cancelled',
      asked: 'cancelled',
      done: 'completed',
    })
    const { reopenedDescendants } = await retryJob(v.db, root!, { ...by, descendants: true })
    expect(reopenedDescendants).toBe(3)
    expect(await state()).toEqual({
      root: 'waiting',
      middle: 'waiting',
      bad: 'queued',
      sibling: 'queued',
      asked: 'cancelled',
      done: 'completed',
    })
    await v.complete(...(await v.claim()))
    expect(await v.row(root!)).toMatchObject({ state: 'waiting', open_children: 1 })
    await v.complete(...(await v.claim()))
    expect((await v.claim()).map((job) => [job.id, job.phase, job.wave])).toEqual([[root, 'aggregate', 1]])
  })

  it("of a keyed spawn meets a child cancelled by its parent's end: reopened", async () => {
    const [id] = await v.enqueue({ type: 'p' })
    await v.spawn(await v.hold(id!), [
      { type: 'a', key: 'k' },
      { type: 'a', key: 'l' },
    ])
    const [first] = await v.claim(1)
    await v.complete(first!)
    // It ended in its ingest: say it was cancelled while it spawned in chunks.
    await cancelJob(v.db, id!, by)
    await v.test.pool.query(`update coppice.job set waiting_since = null where id = $1`, [id])
    await retryJob(v.db, id!, by)
    expect(await v.row(id!)).toMatchObject({ state: 'queued', phase: 'ingest' })
    await v.spawn(await v.hold(id!), [
      { type: 'a', key: 'k' },
      { type: 'a', key: 'l' },
      { type: 'a', key: 'm' },
    ])
    expect(await v.row(id!)).toMatchObject({ state: 'waiting', child_count: 3, open_children: 2 })
    expect((await v.complete(...(await v.claim()))).woken).toEqual([id])
  })
})

describe('failure tolerance', () => {
  const failing = async (n: number, tolerance: string | number, policy: object = {}) => {
    const { id, held } = await family(10, { failureTolerance: tolerance }, policy)
    const ends: string[] = []
    for (const job of held.slice(0, n)) {
      await v.end(job, no)
      ends.push((await v.row(id)).state)
    }
    return ends
  }

  it('is a count of failed children past which the parent fails at once', async () => {
    expect(await failing(3, 2)).toEqual(['waiting', 'waiting', 'failed'])
    expect(await failing(1, 0)).toEqual(['failed'])
  })

  it('or a share of the wave', async () => {
    expect(await failing(3, '20%')).toEqual(['waiting', 'waiting', 'failed'])
  })

  it('does not count children whose failure is ignored', async () => {
    expect(await failing(3, 1, { onChildFailure: 'ignore' })).toEqual(['waiting', 'waiting', 'waiting'])
  })

  it('fails the parent also when the last child of all is the one too many', async () => {
    const { id, held } = await family(2, { failureTolerance: 1 })
    await v.end(held[0]!, no)
    await v.end(held[1]!, no)
    expect(await v.row(id)).toMatchObject({ state: 'failed', error_code: 'CHILD_FAILED', wave: 0, open_children: 0 })
  })

  it('is judged over a batch, and for a parent that is running once it waits', async () => {
    const { id, held } = await family(4, { failureTolerance: '25%' })
    const { settle } = await import('../../src/engine/settle/settle.ts')
    await settle(
      v.db,
      held.slice(0, 2).map((job) => ({ job, outcome: no })),
      by,
    )
    expect((await v.row(id)).state).toBe('failed')
  })
})

describe('pause and resume', () => {
  it('with descendants set the whole tree aside, and let it go on', async () => {
    const [root] = await v.enqueue({
      type: 'p',
      children: [{ type: 'p', children: [{ type: 'a' }, { type: 'b' }] }, { type: 'c' }],
    })
    const held = (await v.claim()).find((job) => job.type === 'a')!
    await v.end((await v.claim()).find((job) => job.type === 'b') ?? held, {
      kind: 'requeue',
      delayMs: 0,
      reason: 'test',
    })
    await pauseJob(v.db, root!, { ...by, descendants: true })
    expect(await v.claim()).toEqual([])
    await resumeJob(v.db, root!, { ...by, descendants: true })
    const states = await v.test.pool.query('select state, count(*)::int from coppice.job group by 1 order by 1')
    expect(states.rows.find((row) => row.state === 'paused')).toBeUndefined()
  })

  it('of a paused ancestor alone stops nobody below it', async () => {
    const { id, held } = await family(1)
    await pauseJob(v.db, id, by)
    await v.end(held[0]!, { kind: 'requeue', delayMs: 0, reason: 'test' })
    expect(await v.claim()).toHaveLength(1)
  })
})
