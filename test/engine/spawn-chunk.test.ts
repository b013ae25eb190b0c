import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { cancelJob, deleteJob } from '../../src/engine/cascade.ts'
import type { ClaimedJob } from '../../src/engine/claim/claimed-job.ts'
import { retryJob } from '../../src/engine/reopen.ts'
import { spawnChunk } from '../../src/engine/spawn-chunk.ts'
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
const failed = { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } } as const
const retry = { kind: 'retry', error: { message: 'no', code: 'UNKNOWN' }, delayMs: 0 } as const

async function parent(options: object = {}): Promise<ClaimedJob> {
  const [id] = await v.enqueue({ type: 'p', ...options })
  return v.hold(id!)
}
const chunk = async (job: ClaimedJob, ...keys: string[]) =>
  spawnChunk(v.db, job, await v.prepare(keys.map((key) => ({ type: 'a', key }))), 'test')
const children = async (job: ClaimedJob) =>
  (
    await v.test.pool.query('select key, state, parent_wave from coppice.job where parent_id = $1 order by key', [
      job.id,
    ])
  ).rows

describe('a chunk of children', () => {
  test('is there at once, counted, and may run and end before the phase does', async () => {
    const job = await parent()
    expect(await chunk(job, 'a', 'b')).toEqual({ created: 2, existing: 0 })
    expect(await v.row(job.id)).toMatchObject({ state: 'running', child_count: 2, open_children: 2, wave: 0 })
    await v.complete(...(await v.claim()))
    expect(await v.row(job.id)).toMatchObject({ state: 'running', child_count: 2, open_children: 0 })
    expect(await chunk(job, 'b', 'c', 'c')).toEqual({ created: 1, existing: 2 })
    // The job was claimed without children: what it has now is found in its row.
    expect(job.childCount).toBe(0)
    await v.spawn(job, [{ type: 'b' }])
    expect(await v.row(job.id)).toMatchObject({ state: 'waiting', child_count: 4, open_children: 2, spawn_wave: 1 })
    const report = await v.complete(...(await v.claim()))
    expect(report.woken).toEqual([job.id])
    expect(await v.row(job.id)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1 })
  })

  test('with all of it ended already, the parent is woken by the end of its phase', async () => {
    const job = await parent()
    await chunk(job, 'a')
    await v.complete(...(await v.claim()))
    expect((await v.spawn(job, [])).woken).toEqual([job.id])
  })

  test('under a job that was deleted or has ended: the parent is gone, and nothing is written', async () => {
    const deleted = await parent()
    await deleteJob(v.db, deleted.id, by)
    await expect(chunk(deleted, 'a')).rejects.toMatchObject({ code: 'PARENT_GONE', parentId: deleted.id })
    const cancelled = await parent()
    await chunk(cancelled, 'a')
    await cancelJob(v.db, cancelled.id, by)
    await expect(chunk(cancelled, 'a', 'b')).rejects.toMatchObject({ code: 'PARENT_GONE', parentId: cancelled.id })
    expect(await children(deleted)).toEqual([])
    expect(await children(cancelled)).toMatchObject([{ key: 'a', state: 'cancelled' }])
  })

  test('by an attempt that lost its job: the lease is lost, and nothing is written', async () => {
    const job = await parent()
    await v.end(job, retry)
    await expect(chunk(job, 'a')).rejects.toMatchObject({ code: 'LEASE_LOST', jobId: job.id })
    const again = await v.hold(job.id)
    await expect(chunk(job, 'a')).rejects.toMatchObject({ code: 'LEASE_LOST' })
    expect(await children(job)).toEqual([])
    expect(await chunk(again, 'a')).toEqual({ created: 1, existing: 0 })
  })

  test('stays when the phase is retried, and the next attempt adds what is missing', async () => {
    const job = await parent()
    await chunk(job, 'a', 'b')
    await v.end(job, retry)
    expect(await v.row(job.id)).toMatchObject({ state: 'queued', phase: 'ingest', open_children: 2 })
    await v.complete(...(await v.claim()).filter((claimed) => claimed.id !== job.id))
    const again = (await v.row(job.id)).claim_token
    const held = { ...job, claimToken: again, childCount: 2 }
    expect(await chunk(held, 'a', 'b', 'c')).toEqual({ created: 1, existing: 2 })
    await v.spawn(held, [])
    expect(await v.row(job.id)).toMatchObject({ state: 'waiting', child_count: 3, open_children: 1 })
  })

  test('of a job that fails for good is cancelled with it, though it was claimed without children', async () => {
    const job = await parent()
    await chunk(job, 'a', 'b')
    await v.end(job, failed)
    expect(await v.row(job.id)).toMatchObject({ state: 'failed', open_children: 0 })
    expect((await children(job)).map((child) => child.state)).toEqual(['cancelled', 'cancelled'])
  })

  test('reopens those that were cancelled with the parent, and leaves the others as they are', async () => {
    const job = await parent()
    await chunk(job, 'a', 'b', 'c')
    const held = await v.claim()
    const keyed = (key: string) => held.find((child) => child.key === key)!
    await v.complete(keyed('a'))
    await cancelJob(v.db, keyed('b').id, by)
    await v.end(job, failed)
    await retryJob(v.db, job.id, by)
    const again = await v.hold(job.id)
    expect(await chunk(again, 'a', 'b', 'c')).toEqual({ created: 0, existing: 3 })
    expect((await children(job)).map((child) => child.state)).toEqual(['completed', 'cancelled', 'queued'])
    expect(await v.row(job.id)).toMatchObject({ child_count: 3, open_children: 1 })
  })

  test('in AGGREGATE, a retried attempt still reads the set it was woken for; the new set is its own', async () => {
    const job = await parent()
    await v.spawn(job, [{ type: 'b' }])
    await v.complete(...(await v.claim()))
    const first = await v.hold(job.id)
    await chunk(first, 'x')
    await v.end(first, retry)
    const second = await v.hold(job.id)
    expect(second).toMatchObject({ phase: 'aggregate', wave: 1, spawnWave: 1, childCount: 2 })
    await chunk(second, 'x', 'y')
    await v.spawn(second, [])
    expect(await v.row(job.id)).toMatchObject({ state: 'waiting', spawn_wave: 2, open_children: 2 })
    expect(await children(job)).toMatchObject([{ parent_wave: 2 }, { parent_wave: 2 }, { key: null, parent_wave: 1 }])
  })

  test('belongs to the set that is spawned in the end, also if a wake came in between', async () => {
    const job = await parent()
    await v.spawn(job, [{ type: 'b' }])
    const [child] = await v.claim()
    await v.end(child!, failed)
    const first = await v.hold(job.id)
    await chunk(first, 'x')
    await v.end(first, retry)
    // Queued with a child open; a reopened one withdraws the wake, and the next is wave 2.
    await retryJob(v.db, child!.id, by)
    await v.complete(...(await v.claim()))
    const second = await v.hold(job.id)
    expect(second).toMatchObject({ wave: 2 })
    await chunk(second, 'x', 'y')
    await v.spawn(second, [])
    expect(await v.row(job.id)).toMatchObject({ state: 'waiting', spawn_wave: 3 })
    expect(await children(job)).toMatchObject([
      { key: 'x', parent_wave: 3 },
      { key: 'y', parent_wave: 3 },
      { key: null, parent_wave: 1 },
    ])
    await v.complete(...(await v.claim()))
  })
})

test('a child reopened or added while its parent ingests does not keep the ingest from being retried', async () => {
  const job = await parent()
  await chunk(job, 'a')
  const [child] = await v.claim()
  await v.end(child!, failed)
  await retryJob(v.db, child!.id, by)
  expect(await v.row(job.id)).toMatchObject({ children_reopened: true, open_children: 1 })
  await v.end(job, retry)
  expect(await v.row(job.id)).toMatchObject({ state: 'queued', phase: 'ingest' })
  // And where the retried one would end, it still waits for the child; its result is kept.
  const again = await v.hold(job.id)
  await v.end(again, { kind: 'completed', result: 7 })
  expect(await v.row(job.id)).toMatchObject({ state: 'waiting', result: 7, open_children: 1 })
  expect((await v.complete(...(await v.claim()))).woken).toEqual([job.id])
})
