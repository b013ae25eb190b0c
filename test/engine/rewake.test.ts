import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { archiveJob } from '../../src/engine/archive.ts'
import { setAssignee } from '../../src/engine/assignee.ts'
import { cancelJob } from '../../src/engine/cascade.ts'
import type { ClaimedJob } from '../../src/engine/claim/claimed-job.ts'
import { pauseJob } from '../../src/engine/pause.ts'
import { retryJob } from '../../src/engine/reopen.ts'
import { rewakeParent } from '../../src/engine/rewake.ts'
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

const by = { actor: 'ann', reason: 'INC-1' }
const forced = { ...by, force: true }
const no = { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } } as const
const sql = (text: string, parameters: unknown[] = []) => v.test.pool.query(text, parameters)

/** A waiting parent whose children are held. */
async function family(n = 2, parent: object = {}, child: object = {}) {
  const children = Array.from({ length: n }, () => ({ type: 'a', ...child }))
  const [id] = await v.enqueue({ type: 'p', ...parent, children })
  return { id: id!, held: (await v.claim()).filter((job) => job.parentId === id) }
}

/** A parent whose only child has ended, and which waits all the same: its wake was withheld, and then was not given. */
async function stuck() {
  await setAssignee(v.db, 'bob', 'paused', by)
  const { id, held } = await family(1, { assigneeId: 'bob' })
  await v.complete(...held)
  await sql(`update coppice.assignee set status = 'active'`)
  expect(await v.row(id)).toMatchObject({ state: 'waiting', open_children: 0 })
  return id
}

/** A parent that failed in its aggregate. */
async function failedAggregate(parent: object = {}) {
  const { id, held } = await family(2, parent)
  await v.end(held[0]!, no)
  await v.complete(held[1]!)
  await v.end(await v.hold(id), no)
  expect(await v.row(id)).toMatchObject({ state: 'failed', phase: 'aggregate', wave: 1 })
  return { id, held }
}

const eventsOf = async (id: string) =>
  (
    await sql(
      `select "from", "to", actor, reason, detail from coppice.job_event where job_id = $1 and kind = 'moved'
       order by version`,
      [id],
    )
  ).rows
const again = async (id: string) => v.complete(await v.hold(id))

describe('a parent that waits', () => {
  it('and whose children have all settled is woken now, with who and why in receipt and event', async () => {
    const id = await stuck()
    const { job, receipt } = await rewakeParent(v.db, id, by)
    expect(job).toMatchObject({ id, state: 'queued', phase: 'aggregate', wave: 1, openChildren: 0 })
    expect(receipt).toMatchObject({ parentId: id, source: 'manual', forced: false, wave: 1, deliveredAttempt: null })
    expect((await eventsOf(id)).at(-1)).toMatchObject({
      from: 'waiting',
      to: 'queued',
      actor: 'ann',
      reason: 'INC-1',
      detail: { source: 'manual', forced: false, operationId: receipt.operationId },
    })
    await again(id)
  })

  it('and has nothing open is simply woken also when forced: nothing was passed over', async () => {
    const id = await stuck()
    expect((await rewakeParent(v.db, id, forced)).receipt).toMatchObject({ source: 'manual', forced: false })
    await again(id)
  })

  it('for open children is refused with how many, and the first 20', async () => {
    const { id, held } = await family(25)
    await v.complete(held[0]!)
    const open = held.slice(1).map((job) => job.id)
    await expect(rewakeParent(v.db, id, by)).rejects.toMatchObject({
      code: 'CHILDREN_OPEN',
      parentId: id,
      openChildren: 24,
      childIds: open.sort().slice(0, 20),
    })
    expect(await v.row(id)).toMatchObject({ state: 'waiting', wave: 0 })
    expect((await sql('select 1 from coppice.wake_receipt')).rows).toEqual([])
  })

  it('for open children is woken with what there is when forced, and says so', async () => {
    const { id, held } = await family(2)
    await v.complete(held[0]!)
    const { job, receipt } = await rewakeParent(v.db, id, forced)
    expect(job).toMatchObject({ state: 'queued', phase: 'aggregate', openChildren: 1 })
    expect(receipt).toMatchObject({ source: 'manual', forced: true })
    expect((await eventsOf(id)).at(-1)).toMatchObject({ reason: 'INC-1', detail: { forced: true, source: 'manual' } })
    await again(id)
    // The child that was passed over ends with its parent, as any would.
    expect(await v.row(held[1]!.id)).toMatchObject({ state: 'cancelled', cancel_code: 'parent_completed' })
  })

  it('is not woken for an assignee that is not active or not there, forced or not', async () => {
    const id = await stuck()
    await setAssignee(v.db, 'bob', 'stopped', by)
    const { id: unknown } = await family(1, { assigneeId: 'nobody' })
    for (const options of [by, forced]) {
      await expect(rewakeParent(v.db, id, options)).rejects.toMatchObject({
        code: 'ASSIGNEE_NOT_ACTIVE',
        jobId: id,
        assigneeId: 'bob',
        status: 'stopped',
      })
    }
    await expect(rewakeParent(v.db, unknown, by)).rejects.toMatchObject({ code: 'CHILDREN_OPEN' })
    await expect(rewakeParent(v.db, unknown, forced)).rejects.toMatchObject({
      code: 'ASSIGNEE_NOT_ACTIVE',
      assigneeId: 'nobody',
      status: null,
    })
    expect(await v.row(id)).toMatchObject({ state: 'waiting', wave: 0 })
  })

  it('and is about to fail for a child is left to that', async () => {
    const { id, held } = await family(1)
    await sql('update coppice.job set failing_child_id = $2 where id = $1', [id, held[0]!.id])
    await expect(rewakeParent(v.db, id, forced)).rejects.toMatchObject({ code: 'INVALID_STATE' })
  })

  it('and is woken by two people at once is woken once; the other learns of it', async () => {
    const id = await stuck()
    const ends = await Promise.allSettled([rewakeParent(v.db, id, by), rewakeParent(v.db, id, by)])
    expect(ends.filter((end) => end.status === 'fulfilled')).toHaveLength(1)
    const [lost] = ends.filter((end) => end.status === 'rejected')
    expect(lost!.reason).toMatchObject({ code: 'ALREADY_DELIVERED', receipt: { wave: 1, source: 'manual' } })
    expect(await v.row(id)).toMatchObject({ state: 'queued', wave: 1 })
  })
})

describe('a parent that was woken and is on its way', () => {
  it('is not woken again, forced or not: the receipt is shown', async () => {
    const { id, held } = await family(1)
    await v.complete(...held)
    for (const options of [by, forced]) {
      await expect(rewakeParent(v.db, id, options)).rejects.toMatchObject({
        code: 'ALREADY_DELIVERED',
        receipt: { parentId: id, source: 'edge', wave: 1, deliveredAttempt: null },
      })
    }
    const parent = await v.hold(id)
    await expect(rewakeParent(v.db, id, forced)).rejects.toMatchObject({
      code: 'ALREADY_DELIVERED',
      receipt: { deliveredAttempt: parent.attempt },
    })
    await v.complete(parent)
  })
})

describe('a parent that failed', () => {
  it('is woken only when forced: it aggregates the same children again, in a new wave with a new receipt', async () => {
    const { id, held } = await failedAggregate()
    const before = (await sql('select * from coppice.wake_receipt')).rows[0]
    await expect(rewakeParent(v.db, id, by)).rejects.toMatchObject({ code: 'INVALID_STATE', state: 'failed' })
    const { job, receipt } = await rewakeParent(v.db, id, forced)
    expect(job).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 2, retryCount: 0, finishedAt: null })
    expect(receipt).toMatchObject({ source: 'manual', forced: true, wave: 2, deliveredAttempt: null })
    expect(receipt.childSetKey).not.toBe(before.child_set_key)
    expect((await eventsOf(id)).slice(-2)).toMatchObject([
      { from: 'failed', to: 'waiting', actor: 'ann', reason: 'INC-1' },
      { from: 'waiting', to: 'queued', actor: 'ann', reason: 'INC-1', detail: { forced: true, source: 'manual' } },
    ])
    const parent = await v.hold(id)
    // It reads the children of the wave that it spawned.
    expect(parent).toMatchObject({ wave: 2, spawnWave: 1 })
    await v.complete(parent)
    expect(await v.row(id)).toMatchObject({ state: 'completed', completion_epoch: 2 })
    expect(await v.row(held[0]!.id)).toMatchObject({ state: 'failed', completion_epoch: 1 })
  })

  it('for a child aggregates what there is: neither the child nor those cancelled with it run again', async () => {
    const { id, held } = await family(2, {}, { onChildFailure: 'fail_parent' })
    await v.end(held[0]!, no)
    expect(await v.row(id)).toMatchObject({ state: 'failed', error_code: 'CHILD_FAILED', phase: 'ingest' })
    await rewakeParent(v.db, id, forced)
    expect(await v.row(id)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1, failing_child_id: null })
    await again(id)
    expect(await v.row(id)).toMatchObject({ state: 'completed' })
    expect(await v.row(held[0]!.id)).toMatchObject({ state: 'failed' })
    expect(await v.row(held[1]!.id)).toMatchObject({ state: 'cancelled', cancel_code: 'parent_failed' })
  })

  it('past its failure tolerance aggregates all the same', async () => {
    const { id, held } = await family(2, { failureTolerance: 0 })
    await v.end(held[0]!, no)
    expect(await v.row(id)).toMatchObject({ state: 'failed' })
    await rewakeParent(v.db, id, forced)
    await again(id)
    expect(await v.row(id)).toMatchObject({ state: 'completed' })
  })

  it('and keeps its children passes the open ones over; they go on beside it', async () => {
    const { id, held } = await family(2, { orphanPolicy: 'keep' }, { onChildFailure: 'fail_parent' })
    await v.end(held[0]!, no)
    expect(await v.row(held[1]!.id)).toMatchObject({ state: 'running' })
    const { job, receipt } = await rewakeParent(v.db, id, forced)
    expect(job).toMatchObject({ state: 'queued', openChildren: 1 })
    expect(receipt.forced).toBe(true)
    await again(id)
    await v.complete(held[1]!)
    expect(await v.row(id)).toMatchObject({ state: 'completed', open_children: 0 })
  })

  it('counts as open again for its own parent, whose wake is withdrawn', async () => {
    const [root] = await v.enqueue({ type: 'p', children: [{ type: 'p', children: [{ type: 'a' }] }] })
    await v.complete(...(await v.claim()))
    const [middle] = (await v.claim()) as [ClaimedJob]
    await v.end(middle, no)
    expect(await v.row(root!)).toMatchObject({ state: 'queued', wave: 1 })
    await rewakeParent(v.db, middle.id, forced)
    expect(await v.row(root!)).toMatchObject({ state: 'waiting', open_children: 1 })
    await again(middle.id)
    expect(await v.row(root!)).toMatchObject({ state: 'queued', wave: 2 })
  })

  it('under a parent that has ended is refused: the orphan sweep would undo it', async () => {
    const [root] = await v.enqueue({ type: 'p', children: [{ type: 'p', children: [{ type: 'a' }] }] })
    await v.complete(...(await v.claim()))
    const [middle] = (await v.claim()) as [ClaimedJob]
    await v.end(middle, no)
    await again(root!)
    await expect(rewakeParent(v.db, middle.id, forced)).rejects.toMatchObject({
      code: 'INVALID_STATE',
      jobId: middle.id,
      message: expect.stringContaining('under a parent that has ended'),
    })
  })

  it('under a parent that has ended and keeps its children aggregates beside it', async () => {
    const middle = { type: 'p', children: [{ type: 'a' }] }
    const [root] = await v.enqueue({ type: 'p', orphanPolicy: 'keep', children: [middle] })
    await v.complete(...(await v.claim()))
    const [held] = (await v.claim()) as [ClaimedJob]
    await v.end(held, no)
    await again(root!)
    await rewakeParent(v.db, held.id, forced)
    await again(held.id)
    expect(await v.row(held.id)).toMatchObject({ state: 'completed', wave: 2 })
    expect(await v.row(root!)).toMatchObject({ state: 'completed', open_children: 0, wave: 1 })
  })

  it('and whose assignee rests stays failed', async () => {
    await setAssignee(v.db, 'bob', 'active', by)
    const { id } = await failedAggregate({ assigneeId: 'bob' })
    await setAssignee(v.db, 'bob', 'paused', by)
    await expect(rewakeParent(v.db, id, forced)).rejects.toMatchObject({ code: 'ASSIGNEE_NOT_ACTIVE' })
    expect(await v.row(id)).toMatchObject({ state: 'failed', wave: 1 })
  })

  it('in its ingest is no matter of waking: it has yet to spawn', async () => {
    const [id] = await v.enqueue({ type: 'p' })
    await v.end((await v.claim())[0]!, no)
    await expect(rewakeParent(v.db, id!, forced)).rejects.toMatchObject({ code: 'INVALID_STATE', state: 'failed' })
  })
})

describe('what is refused, forced or not', () => {
  it.each([
    ['queued', (_id: string) => undefined],
    ['running', (id: string) => v.hold(id)],
    ['completed', async (id: string) => v.complete(await v.hold(id))],
    ['cancelled', (id: string) => cancelJob(v.db, id, by)],
    ['paused', (id: string) => pauseJob(v.db, id, by)],
    ['cancelled and archived', (id: string) => archiveJob(v.db, id, by)],
  ])('a job that is %s', async (state, prepare) => {
    const [id] = await v.enqueue({ type: 'p' })
    await prepare(id!)
    const before = await v.row(id!)
    for (const options of [by, forced]) {
      await expect(rewakeParent(v.db, id!, options)).rejects.toMatchObject({ code: 'INVALID_STATE', jobId: id, state })
    }
    expect(await v.row(id!)).toEqual(before)
  })

  it('a parent that is paused where it waited, or archived, also if it failed', async () => {
    const { id } = await family(1)
    await pauseJob(v.db, id, by)
    await expect(rewakeParent(v.db, id, forced)).rejects.toMatchObject({ code: 'INVALID_STATE', state: 'paused' })
    const failed = await failedAggregate()
    await archiveJob(v.db, failed.id, by)
    await expect(rewakeParent(v.db, failed.id, forced)).rejects.toMatchObject({
      code: 'INVALID_STATE',
      state: 'failed and archived',
    })
  })

  it('a job that is not there', async () => {
    const id = '01890000-0000-7000-8000-00000000ffff'
    await expect(rewakeParent(v.db, id, forced)).rejects.toMatchObject({ code: 'NOT_FOUND', id })
  })
})

describe('what the ingest of a type without an aggregate returned', () => {
  it('is still its result after it failed for a child, and was woken or retried', async () => {
    for (const open of [rewakeParent, retryJob]) {
      const [id] = await v.enqueue({ type: 'p' })
      const children = await v.prepare([{ type: 'a', onChildFailure: 'fail_parent' }])
      await v.end(await v.hold(id!), { kind: 'waiting', children, result: { kept: true } })
      await v.end((await v.claim())[0]!, no)
      expect(await v.row(id!)).toMatchObject({ state: 'failed' })
      await open(v.db, id!, forced)
      expect((await v.hold(id!)).result).toEqual({ kept: true })
    }
  })
})
