import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { archiveJob } from '../../src/engine/archive.ts'
import { deleteJob } from '../../src/engine/cascade.ts'
import type { NewJob } from '../../src/engine/job.ts'
import { retryJob } from '../../src/engine/reopen.ts'
import { spawnChildren } from '../../src/engine/spawn.ts'
import { findViolations } from '../support/invariants.ts'
import { createReconciler } from '../support/reconciler.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

// What docs/receipts.md says of a receipt whose children change afterwards.

let v: Verbs
beforeAll(async () => {
  v = await createVerbs()
})
afterEach(async () => {
  expect(await findViolations(v.test.pool)).toEqual([])
})
afterAll(() => v.close())

const actor = 'test'

async function receiptOf(id: string) {
  return (await v.test.pool.query('select * from coppice.wake_receipt where parent_id = $1', [id])).rows[0]
}

/** A parent that was woken for its two children, and they. */
async function woken(more: Partial<NewJob> = {}): Promise<{ id: string; children: string[] }> {
  const [id] = await v.enqueue({ type: 'p', ...more, children: [{ type: 'a' }, { type: 'a' }] })
  const held = await v.claim()
  await v.complete(...held)
  return { id: id!, children: held.map((job) => job.id) }
}

it('a child opened or added before the claim withdraws the wake; the receipt names it until the next', async () => {
  for (const change of ['open', 'add']) {
    const { id, children } = await woken()
    const first = await receiptOf(id)
    expect(first).toMatchObject({ source: 'edge', wave: 1, forced: false, delivered_attempt: null })
    if (change === 'open') await retryJob(v.db, children[0]!, { actor, rerun: true })
    else await spawnChildren(v.db, id, await v.prepare([{ type: 'a' }]), { actor })
    expect((await v.row(id)).state).toBe('waiting')
    expect(await receiptOf(id)).toEqual(first)
    await v.complete(...(await v.claim()))
    const second = await receiptOf(id)
    expect(second).toMatchObject({ wave: 2, delivered_attempt: null })
    expect(second.operation_id).not.toBe(first.operation_id)
    await v.complete(...(await v.claim()))
    expect(await receiptOf(id)).toMatchObject({ wave: 2, delivered_attempt: 1 })
  }
})

it('a child opened while the parent aggregates lets it wait again; none can be added', async () => {
  const { id, children } = await woken()
  const [aggregating] = await v.claim()
  await retryJob(v.db, children[0]!, { actor, rerun: true })
  const added = spawnChildren(v.db, id, await v.prepare([{ type: 'a' }]), { actor })
  await expect(added).rejects.toMatchObject({ code: 'INVALID_STATE' })
  expect(await receiptOf(id)).toMatchObject({ wave: 1, delivered_attempt: 1 })
  await v.complete(aggregating!)
  expect((await v.row(id)).state).toBe('waiting')
  await v.complete(...(await v.claim()))
  expect(await receiptOf(id)).toMatchObject({ wave: 2, delivered_attempt: null })
  await v.complete(...(await v.claim()))
})

it('once the parent has ended no child is opened; under KEEP one is, and parent and receipt stay', async () => {
  const gone = await woken()
  await v.complete(...(await v.claim()))
  const refused = { code: 'PARENT_GONE' }
  await expect(retryJob(v.db, gone.children[0]!, { actor, rerun: true })).rejects.toMatchObject(refused)
  await expect(spawnChildren(v.db, gone.id, await v.prepare([{ type: 'a' }]), { actor })).rejects.toMatchObject(refused)
  const kept = await woken({ orphanPolicy: 'keep' })
  await v.complete(...(await v.claim()))
  const receipt = await receiptOf(kept.id)
  await retryJob(v.db, kept.children[0]!, { actor, rerun: true })
  await v.complete(...(await v.claim()))
  await createReconciler(v.db).tick()
  expect(await receiptOf(kept.id)).toEqual(receipt)
  expect(await v.row(kept.id)).toMatchObject({ state: 'completed', wave: 1, open_children: 0 })
})

it('a child archived or deleted after the wake changes nothing', async () => {
  const { id, children } = await woken()
  const receipt = await receiptOf(id)
  await archiveJob(v.db, children[0]!, { actor })
  await deleteJob(v.db, children[1]!, { actor })
  await createReconciler(v.db).tick()
  expect(await receiptOf(id)).toEqual(receipt)
  expect(await v.row(id)).toMatchObject({ state: 'queued', wave: 1 })
  await v.complete(...(await v.claim()))
})

it('is removed with its parent', async () => {
  const { id } = await woken()
  await deleteJob(v.db, id, { actor })
  expect(await receiptOf(id)).toBe(undefined)
})
