import { describe, expect, it } from 'vitest'
import { archiveJob } from '../../src/engine/archive.ts'
import { cancelJob, deleteJob } from '../../src/engine/cascade.ts'
import { jobRetention } from '../../src/engine/maintenance/handlers/job-retention.ts'
import { orphanSweep } from '../../src/engine/maintenance/handlers/orphan-sweep.ts'
import { waitTimeouts } from '../../src/engine/maintenance/handlers/wait-timeouts.ts'
import { createMetrics } from '../../src/engine/metrics.ts'
import { retryJob } from '../../src/engine/reopen.ts'
import { type Ages, pruneTree } from '../../src/engine/retention/prune-jobs.ts'
import { createTestEngine } from '../support/engine.ts'
import { maintenanceContext } from '../support/maintenance.ts'
import { plansOf } from '../support/plans.ts'
import { until } from '../support/until.ts'
import { useVerbs } from '../support/use-verbs.ts'

const v = useVerbs()

const HOUR = 3_600_000
const by = { actor: 'test' }
const no = { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } } as const
/** Completed jobs are kept for an hour, cancelled ones for two, failed ones for ever. */
const AGES: Ages = { completed: HOUR, failed: null, cancelled: 2 * HOUR }

const sql = (text: string, parameters: unknown[] = []) => v.test.pool.query(text, parameters)
/** Makes jobs older, all or some. */
const age = (minutes: number, ids?: string[]) =>
  sql(
    `update coppice.job set finished_at = finished_at - $1 * interval '1 minute',
       updated_at = updated_at - $1 * interval '1 minute' where $2::uuid[] is null or id = any($2)`,
    [minutes, ids ?? null],
  )
const left = async () => (await sql('select id from coppice.job order by id')).rows.map((row) => row.id)
const prune = (ages = AGES) => jobRetention(1000, ages).run(maintenanceContext(v.db))
const idsOf = async (tree: string) =>
  (await sql('select id from coppice.job where tree_id = $1 order by depth, id', [tree])).rows.map((row) => row.id)

/** A tree of three levels that has completed. */
async function tree(more: object = {}) {
  const [id] = await v.enqueue({
    type: 'p',
    ...more,
    children: [{ type: 'a' }, { type: 'p', children: [{ type: 'b' }] }],
  })
  for (let held = await v.claim(); held.length > 0; held = await v.claim()) await v.complete(...held)
  expect((await v.row(id!)).state).toBe('completed')
  return id!
}

describe('a job that has ended', () => {
  it('is kept for as long as its state says, then deleted, which the log tells', async () => {
    const [completed, young, failed, cancelled] = await v.enqueue(
      { type: 'a' },
      { type: 'a' },
      { type: 'b' },
      { type: 'c', runAt: new Date(Date.now() + HOUR) },
    )
    const held = await v.claim()
    await v.complete(...held.filter((job) => job.type === 'a'))
    await v.end(held.find((job) => job.type === 'b')!, no)
    await cancelJob(v.db, cancelled!, by)
    await age(61, [completed!, failed!, cancelled!])
    await age(59, [young!])
    await prune()
    expect(await left()).toEqual([young, failed, cancelled].sort())
    const { rows } = await sql('select * from coppice.job_event where job_id = $1 order by version', [completed])
    expect(rows.map((row) => row.version)).toEqual([1, 2, 3, 4])
    expect(rows.at(-1)).toMatchObject({
      kind: 'deleted',
      from: 'completed',
      to: null,
      actor: 'retention',
      reason: 'kept long enough',
    })
    await age(60)
    await prune()
    expect(await left()).toEqual([failed])
  })

  it('is kept for ever where nothing else was said, and while it is open', async () => {
    const [open, completed] = await v.enqueue({ type: 'c' }, { type: 'a' })
    await v.complete(await v.hold(completed!))
    await age(1_000_000)
    await prune({ completed: null, failed: 1000, cancelled: 1000 })
    expect(await left()).toEqual([open, completed].sort())
  })

  it('is left to whoever holds it, and to the next run', async () => {
    const ids = await v.enqueue({ type: 'a' }, { type: 'a' })
    await v.complete(...(await v.claim()))
    await age(90)
    const client = await v.test.pool.connect()
    await client.query('begin')
    await client.query('select from coppice.job where id = $1 for no key update', [ids[0]])
    await prune()
    expect(await left()).toEqual([ids[0]])
    await client.query('rollback')
    client.release()
    await prune()
    expect(await left()).toEqual([])
  })

  it('by plain SQL and without an instant counts from its last change', async () => {
    const [id] = await v.enqueue({ type: 'a' })
    await v.complete(...(await v.claim()))
    await sql('update coppice.job set finished_at = null')
    await prune()
    expect(await left()).toEqual([id])
    await age(90)
    await prune()
    expect(await left()).toEqual([])
  })

  it('may be opened again beside its deletion: it is there and open, or gone, and never half', async () => {
    for (let round = 0; round < 5; round++) {
      const id = await tree()
      await age(90)
      const [pruned, retried] = await Promise.allSettled([
        pruneTree(v.db, id, AGES),
        retryJob(v.db, id, { ...by, rerun: true }),
      ])
      const rows = await idsOf(id)
      if (retried.status === 'fulfilled') {
        expect(pruned).toMatchObject({ value: 0 })
        expect(rows).toHaveLength(4)
        await v.complete(await v.hold(id))
      } else {
        expect(retried.reason).toMatchObject({ code: 'NOT_FOUND' })
        expect(rows).toEqual([])
      }
    }
  })
})

describe('a tree', () => {
  it('goes as a whole, with its receipts', async () => {
    await tree()
    const other = await tree({ metadata: { younger: true } })
    await age(90)
    await age(-60, await idsOf(other))
    await prune()
    expect(await left()).toEqual((await idsOf(other)).sort())
    expect((await sql('select count(*)::int as n from coppice.wake_receipt')).rows).toEqual([{ n: 2 }])
    expect((await sql(`select count(*)::int as n from coppice.job_event where kind = 'deleted'`)).rows).toEqual([
      { n: 4 },
    ])
  })

  it('keeps what an open parent has yet to read, and leaves no child behind (case 52)', async () => {
    const [id] = await v.enqueue({ type: 'p', children: [{ type: 'a' }, { type: 'b' }] })
    const held = await v.claim()
    await v.complete(held.find((job) => job.type === 'a')!)
    await age(1000)
    // The parent waits still; then it is woken; then it aggregates.
    await prune()
    expect(await idsOf(id!)).toHaveLength(3)
    await v.complete(held.find((job) => job.type === 'b')!)
    await age(1000)
    await prune()
    const parent = await v.hold(id!)
    await prune()
    expect(await idsOf(id!)).toHaveLength(3)
    await v.complete(parent)
    await age(30)
    await prune()
    expect(await idsOf(id!)).toHaveLength(3)
    await age(60)
    await prune()
    expect(await left()).toEqual([])
    expect((await sql('select 1 from coppice.wake_receipt')).rows).toEqual([])
  })

  it('stays for what its root keeps, however old the root: so that this is nobody’s orphan', async () => {
    const [id] = await v.enqueue({ type: 'p', orphanPolicy: 'keep', children: [{ type: 'a' }] })
    const held = await v.hold((await idsOf(id!))[1]!)
    await sql(`update coppice.job set timeouts = '{"wait": 1, "onWaitTimeout": "aggregate"}' where id = $1`, [id])
    await sql(`update coppice.job set waiting_since = now() - interval '1 hour' where id = $1`, [id])
    await waitTimeouts(1000).run(maintenanceContext(v.db))
    await v.complete(await v.hold(id!))
    expect(await v.row(id!)).toMatchObject({ state: 'completed', open_children: 1 })
    await age(1000)
    await prune()
    await orphanSweep(1000).run(maintenanceContext(v.db))
    expect(await v.row(held.id)).toMatchObject({ state: 'running' })
    await v.complete(held)
    await prune()
    expect(await idsOf(id!)).toHaveLength(2)
    await age(90)
    await prune()
    expect(await left()).toEqual([])
  })

  it('goes by its root’s state, whatever its other jobs came to', async () => {
    const [id] = await v.enqueue({ type: 'p', children: [{ type: 'a' }] })
    await v.end((await v.claim())[0]!, no)
    await v.complete(await v.hold(id!))
    await age(90)
    await prune()
    expect(await left()).toEqual([])
  })

  it('goes also if it is archived', async () => {
    const id = await tree()
    await archiveJob(v.db, id, by)
    await age(90)
    await prune()
    expect(await left()).toEqual([])
  })

  it('without its root goes once nothing in it is open and each job is due by its own state', async () => {
    const [id] = await v.enqueue({ type: 'p', children: [{ type: 'a' }, { type: 'c' }] })
    await v.complete((await v.claim()).find((job) => job.type === 'a')!)
    await deleteJob(v.db, id!, by)
    await age(90)
    await prune()
    // One completed, the other cancelled with its parent: that one is kept for two hours.
    expect(await left()).toHaveLength(2)
    await age(60)
    await prune()
    expect(await left()).toEqual([])
  })

  it('without its root stays where what is below failed, and that is kept for ever', async () => {
    const [id] = await v.enqueue({ type: 'p', children: [{ type: 'a' }] })
    await v.end((await v.claim())[0]!, no)
    await deleteJob(v.db, id!, by)
    await age(100_000)
    await prune()
    expect(await left()).toHaveLength(1)
  })
})

describe('a run', () => {
  it('is not held up by trees that are not due yet, and goes on where it was stopped', async () => {
    const blocked = await v.enqueue(
      ...Array.from({ length: 5 }, () => ({ type: 'p', orphanPolicy: 'keep' as const, children: [{ type: 'x' }] })),
    )
    await sql(
      `with ended as (
         update coppice.job set state = 'cancelled', finished_at = now(), version = 2, cancel_code = 'requested'
         where id = any($1) returning *)
       insert into coppice.job_event
         (kind, job_id, tree_id, type, "from", "to", phase, wave, attempt, version, actor)
       select 'moved', id, id, type, 'waiting', state, phase, 0, 0, 2, 'test' from ended`,
      [blocked],
    )
    await age(300)
    const due = await v.enqueue(...Array.from({ length: 4 }, () => ({ type: 'c' })))
    for (const id of due) await cancelJob(v.db, id, by)
    await age(150, due)
    const stopping = new AbortController()
    let deleted = 0
    const context = maintenanceContext(v.db, {
      signal: stopping.signal,
      changed: () => {
        deleted += 1
        stopping.abort()
      },
    })
    await jobRetention(1000, AGES, 2).run(context)
    expect(deleted).toBe(1)
    expect(context.state).toMatchObject({ cancelled: { id: due[0] } })
    // Elsewhere.
    const next = maintenanceContext(v.db)
    await next.remember(context.state)
    await jobRetention(1000, AGES, 2).run(next)
    expect(next.state).toMatchObject({ cancelled: null })
    expect((await left()).filter((id) => due.includes(id))).toEqual([])
    expect(await left()).toHaveLength(10)
    await sql('truncate coppice.job, coppice.job_event, coppice.wake_receipt')
  })

  it('deletes many in few transactions, counts them, and names itself to triggers', async () => {
    await sql(`
      create table public.seen (writer text, xid xid8);
      create function public.see() returns trigger language plpgsql as $$
        begin insert into public.seen values (current_setting('coppice.writer', true), pg_current_xact_id()); return null; end $$;
      create trigger see after delete on coppice.job for each row execute function public.see()`)
    try {
      await v.enqueue(...Array.from({ length: 1200 }, () => ({ type: 'a' })))
      for (let held = await v.claim(500); held.length > 0; held = await v.claim(500)) await v.complete(...held)
      await tree()
      await age(90)
      const metrics = createMetrics()
      await jobRetention(1000, AGES).run(maintenanceContext(v.db, { metrics }))
      expect(await left()).toEqual([])
      expect((await metrics.retentionJobsDeleted.get()).values[0]!.value).toBe(1204)
      const { rows } = await sql(
        'select writer, count(*)::int, count(distinct xid)::int as xids from public.seen group by 1',
      )
      expect(rows).toEqual([{ writer: 'engine', count: 1204, xids: expect.any(Number) }])
      expect(rows[0].xids).toBeLessThanOrEqual(4)
    } finally {
      await sql('drop trigger see on coppice.job; drop function public.see; drop table public.seen')
    }
  })

  it('takes what is due by indexes, and reads nothing else', async () => {
    const fill = async () => {
      await sql('truncate coppice.job, coppice.job_event, coppice.wake_receipt')
      await sql(`
        insert into coppice.job (id, tree_id, parent_id, depth, type, state, finished_at)
        select md5('r' || n)::uuid, md5('r' || n)::uuid, null, 0, 'a', 'completed',
          now() - case when n <= 30 then interval '2 hours' else interval '1 minute' end
        from generate_series(1, 20000) n
        union all
        select md5('c' || n || '/' || m)::uuid, md5('r' || n)::uuid, md5('r' || n)::uuid, 1, 'a', 'completed',
          now() - case when n <= 30 then interval '2 hours' else interval '1 minute' end
        from generate_series(21, 50) n, generate_series(1, 300) m`)
    }
    await fill()
    for (const analyzed of [false, true]) {
      if (analyzed) await sql('analyze coppice.job')
      const plans = await plansOf(v.db, (db) => jobRetention(1000, AGES).run(maintenanceContext(db)), fill)
      const names = plans.map((plan) => plan.name)
      expect(names).toEqual(
        expect.arrayContaining([
          'retention.due-completed',
          'retention.due-cancelled',
          'retention.delete-leaves',
          'retention.keeps-tree',
          'retention.delete-tree',
          'retention.undated',
          'retention.rootless',
        ]),
      )
      for (const plan of plans) {
        expect(plan.text, `${plan.name}\n${plan.text}`).not.toMatch(/Seq Scan on|Seq Scan job/)
        expect(plan.read, `${plan.name}\n${plan.text}`).toBeLessThan(1000)
      }
      await fill()
    }
    await sql('truncate coppice.job, coppice.job_event, coppice.wake_receipt')
  })
})

it('an engine that is told how long to keep them does so from its start', async () => {
  const [id, kept] = await v.enqueue({ type: 'a' }, { type: 'b' })
  const held = await v.claim()
  await v.complete(held.find((job) => job.id === id)!)
  await v.end(held.find((job) => job.id === kept)!, no)
  await age(90)
  const { close } = await createTestEngine({ test: v.test, retention: { completed: '1h' } })
  try {
    await until(async () => (await left()).length === 1)
    expect(await left()).toEqual([kept])
  } finally {
    await close()
  }
})
