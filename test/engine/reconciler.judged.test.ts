import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { archiveJob } from '../../src/engine/archive.ts'
import type { NewJob } from '../../src/engine/job.ts'
import { retryJob } from '../../src/engine/reopen.ts'
import { wakeParent } from '../../src/engine/wake.ts'
import { findViolations } from '../support/invariants.ts'
import { createReconciler } from '../support/reconciler.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

// Parents whose children have failed: recovery fails those that do not bear it, as the edge does.

let v: Verbs
beforeAll(async () => {
  v = await createVerbs()
})
beforeEach(async () => {
  await sql('truncate coppice.job, coppice.job_event, coppice.wake_receipt, coppice.wake_mark')
})
afterAll(() => v.close())

const actor = 'test'
const no = { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } } as const
const sql = (text: string, parameters: unknown[] = []) => v.test.pool.query(text, parameters)
const childrenOf = async (id: string): Promise<string[]> =>
  (await sql('select id from coppice.job where parent_id = $1 order by id', [id])).rows.map((row) => row.id)
const family = (children: number, child: Partial<NewJob> = {}, more: Partial<NewJob> = {}): NewJob => ({
  type: 'p',
  ...more,
  children: Array.from({ length: children }, () => ({ type: 'a', ...child })),
})

describe('children that plain SQL fails with the triggers off', () => {
  beforeEach(() => sql('alter table coppice.job disable trigger user'))
  afterEach(() => sql('alter table coppice.job enable trigger user'))

  /** Fails the first `failed` children and completes the next `completed`; one tick. */
  async function end(id: string, failed: number, completed: number): Promise<void> {
    const children = await childrenOf(id)
    const set = `update coppice.job set state = $2 where id = any($1::uuid[])`
    await sql(set, [children.slice(0, failed), 'failed'])
    await sql(set, [children.slice(failed, failed + completed), 'completed'])
    await createReconciler(v.db).tick()
  }

  it.each([
    ['takes its parent with it, as the last one', family(1, { onChildFailure: 'fail_parent' }), 1, 0],
    ['takes its parent with it, and its siblings', family(3, { onChildFailure: 'fail_parent' }), 1, 1],
    ['is one more than is tolerated, as the last one', family(2, {}, { failureTolerance: 1 }), 2, 0],
    ['is one more than is tolerated, before the last one', family(3, {}, { failureTolerance: 1 }), 2, 0],
    ['is more than a tolerated share', family(10, {}, { failureTolerance: '10%' }), 2, 8],
  ] as const)('one that %s: the parent fails', async (_what, job, failed, completed) => {
    const [id] = await v.enqueue(job)
    await end(id!, failed, completed)
    expect(await v.row(id!)).toMatchObject({ state: 'failed', error_code: 'CHILD_FAILED', wave: 0 })
    const active = await sql(`select from coppice.job where state in ('queued', 'waiting')`)
    expect(active.rowCount).toBe(0)
  })

  it.each([
    ['is ignored', family(1, { onChildFailure: 'ignore' }, { failureTolerance: 0 }), 1, 0],
    ['nobody has forbidden to fail', family(1), 1, 0],
    ['is tolerated', family(2, {}, { failureTolerance: 1 }), 1, 1],
    ['is a tolerated share', family(10, {}, { failureTolerance: '20%' }), 2, 8],
  ] as const)('one that %s: the parent is woken', async (_what, job, failed, completed) => {
    const [id] = await v.enqueue(job)
    await end(id!, failed, completed)
    expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 1, failing_child_id: null })
  })

  it('one that was archived since: the parent is woken', async () => {
    const [id] = await v.enqueue(family(2, { onChildFailure: 'fail_parent' }))
    const [first] = await childrenOf(id!)
    await sql(`update coppice.job set state = 'failed', archived_at = now() where id = $1`, [first])
    await sql(`update coppice.job set state = 'completed' where parent_id = $1 and id <> $2`, [id, first])
    await createReconciler(v.db).tick()
    expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 1 })
  })

  it('whose parent was failed for them and retried: it is woken', async () => {
    const [id] = await v.enqueue(family(1, { onChildFailure: 'fail_parent' }))
    const [held] = await v.claim()
    await v.end(held!, no)
    expect((await v.row(id!)).state).toBe('failed')
    await retryJob(v.db, id!, { actor })
    // As if that wake had been lost.
    await sql(`update coppice.job set state = 'waiting', waiting_since = now(), wave = 0 where id = $1`, [id])
    await sql('truncate coppice.wake_receipt')
    await createReconciler(v.db).tick()
    expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 1 })
  })
})

describe('a parent that is marked to fail', () => {
  it('is not woken, by whomever', async () => {
    const [id] = await v.enqueue(family(1))
    await sql(`update coppice.job set state = 'completed', version = version + 1 where parent_id = $1`, [id])
    await sql('update coppice.job set failing_child_id = $2 where id = $1', [id, (await childrenOf(id!))[0]])
    expect(await wakeParent(v.db, id!, { source: 'reconciler', actor })).toBe(undefined)
    expect(await wakeParent(v.db, id!, { source: 'manual', actor, forced: true })).toBe(undefined)
    expect(await v.row(id!)).toMatchObject({ state: 'waiting', wave: 0 })
  })
})

describe('a failure tolerance, at the edge', () => {
  afterEach(async () => {
    expect(await findViolations(v.test.pool)).toEqual([])
  })

  /** A parent of two waves: the second one's children are claimed. */
  async function secondWave(tolerance: number | string, [first, second]: [number, number], failed: number) {
    const [id] = await v.enqueue({ type: 'p', failureTolerance: tolerance })
    await v.spawn(await v.hold(id!), family(first).children!)
    for (const [at, job] of (await v.claim()).entries()) {
      if (at < failed) await v.end(job, no)
      else await v.complete(job)
    }
    await v.spawn(await v.hold(id!), family(second).children!)
    return { id: id!, held: await v.claim() }
  }

  it('is of the failures of the present wave', async () => {
    const { id, held } = await secondWave(1, [2, 2], 1)
    await v.end(held[0]!, no)
    await v.complete(held[1]!)
    expect(await v.row(id)).toMatchObject({ state: 'queued', wave: 2 })
  })

  it('is a share of the present wave', async () => {
    const { id, held } = await secondWave('50%', [4, 2], 0)
    for (const job of held) await v.end(job, no)
    expect((await v.row(id)).state).toBe('failed')
  })

  it('does not count a failed child that is archived', async () => {
    const [id] = await v.enqueue(family(3, {}, { failureTolerance: 1 }))
    const held = await v.claim()
    await v.end(held[0]!, no)
    await archiveJob(v.db, held[0]!.id, { actor })
    await v.end(held[1]!, no)
    expect((await v.row(id!)).state).toBe('waiting')
    await v.end(held[2]!, no)
    expect((await v.row(id!)).state).toBe('failed')
  })

  it('is a share of those that are not archived', async () => {
    const [id] = await v.enqueue(family(4, {}, { failureTolerance: '40%' }))
    const held = await v.claim()
    for (const job of held.slice(0, 2)) {
      await v.complete(job)
      await archiveJob(v.db, job.id, { actor })
    }
    await v.end(held[2]!, no)
    expect((await v.row(id!)).state).toBe('failed')
  })
})
