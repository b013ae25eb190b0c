import { describe, expect, it } from 'vitest'
import { openDatabase } from '../../src/db/database.ts'
import { migrate } from '../../src/db/migrate.ts'
import { deleteJob } from '../../src/engine/cascade.ts'
import { enqueueJobs } from '../../src/engine/enqueue.ts'
import type { NewJob } from '../../src/engine/job.ts'
import { recoverLostJobs } from '../../src/engine/lease/recovery.ts'
import { pauseJob, resumeJob } from '../../src/engine/pause.ts'
import { prepareJobs } from '../../src/engine/prepare.ts'
import { retryJob } from '../../src/engine/reopen.ts'
import { captureLog } from '../support/captured-log.ts'
import { createReconciler } from '../support/reconciler.ts'
import { useVerbs } from '../support/use-verbs.ts'

// What plain SQL does to jobs: it is logged as if a verb had done it, and hangs no parent, nor wakes one early.

const v = useVerbs()

const actor = 'test'
const sql = (text: string, parameters: unknown[] = []) => v.test.pool.query(text, parameters)
const family = (children: NewJob[] = [{ type: 'a' }, { type: 'a' }], more: Partial<NewJob> = {}): NewJob => ({
  type: 'p',
  ...more,
  children,
})
const childrenOf = async (id: string): Promise<string[]> =>
  (await sql('select id from coppice.job where parent_id = $1 order by id', [id])).rows.map((row) => row.id)
const lastEvent = async (id: string) =>
  (await sql('select * from coppice.job_event where job_id = $1 order by version desc limit 1', [id])).rows[0]
const marks = async () => (await sql('select parent_id, failed_child_id from coppice.wake_mark order by id')).rows

/** Each way in which plain SQL takes an open child from its parent. */
const WAYS: readonly (readonly [string, string])[] = [
  ['completed', `update coppice.job set state = 'completed' where id = $1`],
  ['failed', `update coppice.job set state = 'failed', error = 'by hand' where id = $1`],
  ['cancelled', `update coppice.job set state = 'cancelled' where id = $1`],
  ['archived', `update coppice.job set archived_at = now() where id = $1`],
  ['deleted', `delete from coppice.job where id = $1`],
]

describe('a child that plain SQL ends', () => {
  it.each(WAYS)(
    'when it is %s: an event, a version, an epoch, and the parent is woken by the next tick',
    async (what, text) => {
      const [id] = await v.enqueue(family())
      const [first, second] = await childrenOf(id!)
      const reconciler = createReconciler(v.db)
      await sql(text, [first])
      await reconciler.tick()
      expect(await v.row(id!)).toMatchObject({ state: 'waiting', open_children: 1 })
      await sql(text, [second])
      await reconciler.tick()
      expect(await v.row(id!)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1, open_children: 0 })
      expect(await marks()).toEqual([])
      expect(await reconciler.figures()).toMatchObject({ woken: 1, stuck: 0 })
      const kind = ['archived', 'deleted'].includes(what) ? what : 'moved'
      expect(await lastEvent(second!)).toMatchObject({ kind, actor: 'sql', version: 2, from: 'queued' })
      if (kind !== 'moved') return
      expect(await v.row(second!)).toMatchObject({ state: what, version: 2, completion_epoch: 1, waiting_since: null })
      expect((await v.row(second!)).finished_at).toBeInstanceOf(Date)
    },
  )

  it.each(WAYS)(
    'when it is %s and the trigger is disabled: the audit finds the parent within a round',
    async (what, text) => {
      const [id] = await v.enqueue(family())
      const children = await childrenOf(id!)
      await sql('alter table coppice.job disable trigger user')
      try {
        const reconciler = createReconciler(v.db)
        await sql(text, [children[0]])
        await reconciler.tick()
        expect(await v.row(id!)).toMatchObject({ state: 'waiting', open_children: 1 })
        await sql(text, [children[1]])
        expect(await marks()).toEqual([])
        await reconciler.tick()
        expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 1, open_children: 0 })
        expect(await reconciler.figures()).toMatchObject({ woken: 1, repaired: 2 })
      } finally {
        await sql('alter table coppice.job enable trigger user')
      }
      // Moves without events are not for the checker.
      expect(what).not.toBe('')
      await sql('truncate coppice.job, coppice.job_event, coppice.wake_receipt')
    },
  )

  it('many at once, in one statement', async () => {
    const [id, other] = await v.enqueue(
      family(Array.from({ length: 300 }, () => ({ type: 'a' }))),
      family(Array.from({ length: 300 }, () => ({ type: 'b' }))),
    )
    await sql(`update coppice.job set state = 'cancelled' where parent_id = $1`, [id])
    await sql(`delete from coppice.job where parent_id = $1`, [other])
    await createReconciler(v.db).tick()
    for (const parent of [id!, other!]) expect(await v.row(parent)).toMatchObject({ state: 'queued', wave: 1 })
    expect(await marks()).toEqual([])
  })

  it('in a transaction beside others on the same parent: none waits for the other', async () => {
    const [id] = await v.enqueue(family())
    const children = await childrenOf(id!)
    const clients = await Promise.all(children.map(() => v.test.pool.connect()))
    try {
      for (const [at, client] of clients.entries()) {
        await client.query(`begin; set local lock_timeout = '1s'`)
        await client.query(`update coppice.job set state = 'completed' where id = $1`, [children[at]])
      }
      // The one that began later commits first: its mark has the higher id.
      for (const client of clients.reverse()) {
        await client.query('commit')
        await createReconciler(v.db).tick()
      }
    } finally {
      for (const client of clients) client.release()
    }
    expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 1 })
    expect(await marks()).toEqual([])
  })

  it('and that takes its parent with it fails the parent', async () => {
    const [id] = await v.enqueue(family([{ type: 'a', onChildFailure: 'fail_parent' }, { type: 'a' }]))
    const [first, second] = await childrenOf(id!)
    await sql(`update coppice.job set state = 'failed' where id = $1`, [first])
    expect(await marks()).toEqual([{ parent_id: id, failed_child_id: first }])
    await createReconciler(v.db).tick()
    expect(await v.row(id!)).toMatchObject({ state: 'failed', error_code: 'CHILD_FAILED', failing_child_id: first })
    expect(await v.row(second!)).toMatchObject({ state: 'cancelled', cancel_code: 'parent_failed' })
  })

  it('and that was put back before the tick fails nobody', async () => {
    const [id] = await v.enqueue(family([{ type: 'a', onChildFailure: 'fail_parent' }]))
    const [child] = await childrenOf(id!)
    await sql(`update coppice.job set state = 'failed' where id = $1`, [child])
    await sql(`update coppice.job set state = 'queued' where id = $1`, [child])
    await createReconciler(v.db).tick()
    expect(await v.row(id!)).toMatchObject({ state: 'waiting', open_children: 1, failing_child_id: null })
    expect(await lastEvent(child!)).toMatchObject({ from: 'failed', to: 'queued', version: 3 })
    expect((await v.row(child!)).finished_at).toBe(null)
  })

  it('counts against what its parent tolerates', async () => {
    const [id] = await v.enqueue(family([{ type: 'a' }, { type: 'a' }, { type: 'a' }], { failureTolerance: 1 }))
    const children = await childrenOf(id!)
    const reconciler = createReconciler(v.db)
    await sql(`update coppice.job set state = 'failed' where id = $1`, [children[0]])
    await reconciler.tick()
    expect((await v.row(id!)).state).toBe('waiting')
    await sql(`update coppice.job set state = 'failed' where id = $1`, [children[1]])
    await reconciler.tick()
    expect(await v.row(id!)).toMatchObject({ state: 'failed', error_code: 'CHILD_FAILED' })
  })

  it('while an attempt holds it: what that brings is refused', async () => {
    const [id] = await v.enqueue({ type: 'a' })
    for (const state of ['completed', 'queued', 'waiting']) {
      const [held] = await v.claim()
      await sql(`update coppice.job set state = $2 where id = $1`, [id, state])
      expect((await v.complete(held!)).stale).toEqual([id])
      expect((await v.row(id!)).state).toBe(state)
      await sql(`update coppice.job set state = 'queued', phase = 'ingest' where id = $1`, [id])
    }
  })
})

describe('a child that plain SQL opens', () => {
  it('after its parent was woken withdraws the wake; its end gives the next', async () => {
    const [id] = await v.enqueue(family([{ type: 'a' }]))
    const [child] = await childrenOf(id!)
    await v.complete(...(await v.claim()))
    await sql(`update coppice.job set state = 'queued' where id = $1`, [child])
    await createReconciler(v.db).tick()
    expect(await v.row(id!)).toMatchObject({ state: 'waiting', wave: 1, open_children: 1 })
    expect(await lastEvent(id!)).toMatchObject({ reason: 'child reopened or added by SQL: wake withdrawn' })
    await v.complete(...(await v.claim()))
    expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 2 })
  })

  it('by taking it out of the archive is waited for', async () => {
    const [id] = await v.enqueue(family())
    const [first] = await childrenOf(id!)
    const reconciler = createReconciler(v.db)
    await sql('update coppice.job set archived_at = now() where id = $1', [first])
    await reconciler.tick()
    expect(await v.row(id!)).toMatchObject({ open_children: 1, child_count: 1 })
    await sql('update coppice.job set archived_at = null where id = $1', [first])
    await reconciler.tick()
    expect(await v.row(id!)).toMatchObject({ state: 'waiting', open_children: 2, child_count: 2 })
    expect(await lastEvent(first!)).toMatchObject({ kind: 'unarchived', version: 3 })
    // Another instant is no other state.
    await sql(`update coppice.job set archived_at = now() where id = $1`, [first])
    await sql(`update coppice.job set archived_at = now() - interval '1 day' where id = $1`, [first])
    expect((await v.row(first!)).version).toBe(4)
    await reconciler.tick()
  })

  it('by adding it is counted, and waited for', async () => {
    const [id] = await v.enqueue(family([{ type: 'a' }]))
    const { rows } = await sql(
      `insert into coppice.job (id, tree_id, parent_id, depth, type) values (gen_random_uuid(), $1, $1, 1, 'b') returning id`,
      [id],
    )
    expect(await marks()).toEqual([{ parent_id: id, failed_child_id: null }])
    await createReconciler(v.db).tick()
    expect(await v.row(id!)).toMatchObject({ state: 'waiting', open_children: 2, child_count: 2 })
    await v.complete(...(await v.claim()).filter((job) => job.id !== rows[0].id))
    expect((await v.row(id!)).state).toBe('waiting')
    await sql('delete from coppice.job where id = $1', [rows[0].id])
    await createReconciler(v.db).tick()
    expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 1 })
    // It was never created by anything that logs.
    await sql('delete from coppice.job_event where job_id = $1', [rows[0].id])
  })
})

describe('a parent that plain SQL moves', () => {
  it('to WAITING is found due at once, and may be paused, resumed and retried like any other', async () => {
    const [id] = await v.enqueue({ type: 'p' })
    await sql(`update coppice.job set state = 'waiting' where id = $1`, [id])
    expect((await v.row(id!)).waiting_since).toBeInstanceOf(Date)
    expect(await marks()).toEqual([{ parent_id: id, failed_child_id: null }])
    await createReconciler(v.db).tick()
    expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 1, waiting_since: null })
  })

  it('by an illegal move keeps its ways out', async () => {
    const [id] = await v.enqueue({ type: 'p', children: [{ type: 'a' }] })
    await v.complete(...(await v.claim()))
    await v.complete(...(await v.claim()))
    await sql(`update coppice.job set state = 'paused' where id = $1`, [id])
    expect(await lastEvent(id!)).toMatchObject({ from: 'completed', to: 'paused', actor: 'sql' })
    await resumeJob(v.db, id!, { actor })
    await pauseJob(v.db, id!, { actor })
    await sql(`update coppice.job set state = 'cancelled' where id = $1`, [id])
    expect(await v.row(id!)).toMatchObject({ paused_from: null, completion_epoch: 2 })
    await retryJob(v.db, id!, { actor })
    expect(await v.row(id!)).toMatchObject({ state: 'queued', phase: 'aggregate', finished_at: null })
  })

  it('out of a wait keeps since when it waited, if it has failed or was cancelled: a retry waits again', async () => {
    const [id] = await v.enqueue(family([{ type: 'a' }], { orphanPolicy: 'keep' }))
    await sql(`update coppice.job set state = 'failed' where id = $1`, [id])
    await retryJob(v.db, id!, { actor })
    expect(await v.row(id!)).toMatchObject({ state: 'waiting', open_children: 1 })
    await v.complete(...(await v.claim()))
    expect(await v.row(id!)).toMatchObject({ state: 'queued', wave: 1 })
    await createReconciler(v.db).tick()
  })

  it('to RUNNING, where nobody holds it, is given back, with the trigger and without', async () => {
    const [fresh, used] = await v.enqueue({ type: 'a' }, { type: 'a' })
    const held = await v.claim()
    await v.end(held.find((job) => job.id === used)!, { kind: 'requeue', delayMs: 0, reason: 'test' })
    await v.end(held.find((job) => job.id === fresh)!, { kind: 'requeue', delayMs: 0, reason: 'test' })
    const log = captureLog()
    const recover = () => recoverLostJobs(v.db, { actor, logger: log.logger })
    await sql(`update coppice.job set state = 'running' where id = any($1)`, [[fresh, used]])
    expect(await v.row(used!)).toMatchObject({ claim_token: null, worker_id: null })
    expect(await recover()).toEqual({ retried: 2, failed: 0 })
    await sql('alter table coppice.job disable trigger user')
    await sql(`update coppice.job set state = 'running', version = version + 1, claim_token = null where id = $1`, [
      fresh,
    ])
    await sql(`update coppice.job set state = 'running', version = version + 1, worker_id = null where id = $1`, [used])
    await sql('alter table coppice.job enable trigger user')
    expect(await recover()).toEqual({ retried: 2, failed: 0 })
    for (const id of [fresh!, used!]) {
      expect(await v.row(id)).toMatchObject({ state: 'queued', retry_count: 2 })
      expect(await lastEvent(id)).toMatchObject({ reason: 'No worker holds this job.' })
    }
    await sql('truncate coppice.job, coppice.job_event, coppice.wake_receipt')
  })
})

describe('what the engine does', () => {
  it('leaves no mark and no event of plain SQL', async () => {
    const [id] = await v.enqueue(family([{ type: 'a' }, { type: 'p', children: [{ type: 'a' }] }]))
    await v.complete(...(await v.claim()))
    await pauseJob(v.db, id!, { actor })
    await resumeJob(v.db, id!, { actor })
    await v.complete(...(await v.claim()))
    await v.complete(...(await v.claim()))
    expect(await marks()).toEqual([])
    expect((await sql(`select count(*)::int from coppice.job_event where actor = 'sql'`)).rows).toEqual([{ count: 0 }])
  })

  it('in a schema of another name is told apart just so', async () => {
    const schema = 'OtherJobs'
    await migrate({ connectionString: v.test.connectionString, schema })
    const db = openDatabase({ connectionString: v.test.connectionString, schema })
    try {
      const prepared = await prepareJobs([family([{ type: 'a' }])])
      const [parent] = await enqueueJobs(db, prepared, { actor })
      await db.pool.query(`update "OtherJobs".job set state = 'completed' where parent_id = $1`, [parent!.id])
      await createReconciler(db).tick()
      const { rows } = await db.pool.query('select state, wave from "OtherJobs".job order by depth')
      expect(rows).toEqual([
        { state: 'queued', wave: 1 },
        { state: 'completed', wave: 0 },
      ])
      await deleteJob(db, parent!.id, { actor })
      const events = await db.pool.query('select kind, actor from "OtherJobs".job_event order by id')
      expect(events.rows.map((row) => `${row.kind} ${row.actor}`)).toEqual([
        'created test',
        'created test',
        'moved sql',
        'moved reconciler',
        'deleted test',
      ])
    } finally {
      await db.close()
    }
  })
})
