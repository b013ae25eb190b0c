import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { archiveJob } from '../../src/engine/archive.ts'
import { cancelJob, deleteJob, failJob } from '../../src/engine/cascade.ts'
import { orphanSweep } from '../../src/engine/maintenance/handlers/orphan-sweep.ts'
import { pauseJob, resumeJob } from '../../src/engine/pause.ts'
import { retryJob } from '../../src/engine/reopen.ts'
import { maintenanceContext } from '../support/maintenance.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

// Plain SQL has made a job an ancestor of itself: verbs on its subtree say so, and change nothing.

let v: Verbs
beforeAll(async () => {
  v = await createVerbs()
})
beforeEach(() => sql('truncate coppice.job, coppice.job_event, coppice.wake_receipt, coppice.wake_mark'))
afterAll(() => v.close())

const actor = 'test'
const by = { actor }
const sql = (text: string, parameters: unknown[] = []) => v.test.pool.query(text, parameters)

/** A circle of so many jobs, and one of them. */
async function circle(length: number): Promise<string> {
  const ids = await v.enqueue(...Array.from({ length }, () => ({ type: 'p' })))
  for (const [at, id] of ids.entries()) {
    await sql('update coppice.job set parent_id = $2, tree_id = $3 where id = $1', [id, ids.at(at - 1), ids[0]])
  }
  return ids[0]!
}

describe.each([1, 2, 3])('in a circle of %i', (length) => {
  const verbs: [string, (id: string) => Promise<unknown>][] = [
    ['cancel', (id) => cancelJob(v.db, id, by)],
    ['delete', (id) => deleteJob(v.db, id, by)],
    ['archive', (id) => archiveJob(v.db, id, by)],
    ['pause with descendants', (id) => pauseJob(v.db, id, { actor, descendants: true })],
    ['resume with descendants', (id) => resumeJob(v.db, id, { actor, descendants: true })],
    ['failure', (id) => failJob(v.db, id, { actor, from: ['queued'], why: () => ({ message: '', code: 'UNKNOWN' }) })],
  ]
  it.each(verbs)('%s is refused', async (_what, verb) => {
    const id = await circle(length)
    await expect(verb(id)).rejects.toMatchObject({ code: 'JOB_CYCLE', message: expect.stringContaining(id) })
    expect(await v.row(id)).toMatchObject({ state: 'queued', version: 1 })
  })

  it('retry with descendants is refused', async () => {
    const id = await circle(length)
    await sql(`update coppice.job set state = 'cancelled', cancel_code = 'parent_cancelled', phase = 'aggregate',
      orphan_policy = 'keep'`)
    const retry = retryJob(v.db, id, { actor, descendants: true })
    await expect(retry).rejects.toMatchObject({ code: 'JOB_CYCLE' })
    expect((await v.row(id)).state).toBe('cancelled')
  })

  it('an attempt that ends with open children leaves its job unsettled, and throws nothing', async () => {
    const id = await circle(length)
    await sql(`update coppice.job set open_children = 1, child_count = 1`)
    const held = (await v.claim()).find((job) => job.id === id)!
    await sql(`update coppice.job set state = 'queued', claim_token = null where id <> $1`, [id])
    const report = await v.complete(held)
    expect(report.unsettled.map((one) => one.id)).toEqual([id])
    expect((await v.row(id)).state).toBe('running')
  })
})

it('a circle below a parent that has ended keeps the orphan sweep from no other', async () => {
  const id = await circle(2)
  const [child] = (await sql('select id from coppice.job where id <> $1', [id])).rows
  await sql(`update coppice.job set state = 'completed', open_children = 1 where id = $1`, [id])
  const [parent] = await v.enqueue({ type: 'p', children: [{ type: 'a' }] })
  const orphan = (await sql('select id from coppice.job where parent_id = $1', [parent])).rows[0].id
  await sql('delete from coppice.job where id = $1', [parent])
  const remembered: unknown[] = []
  const remember = async (state: unknown) => void remembered.push(state)
  const context = { ...maintenanceContext(v.db), remember }
  await expect(orphanSweep(1000).run(context)).rejects.toMatchObject({ code: 'JOB_CYCLE' })
  expect((await v.row(orphan)).state).toBe('cancelled')
  expect((await v.row(child.id)).state).toBe('queued')
  expect(remembered).toEqual([null])
})
