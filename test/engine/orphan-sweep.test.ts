import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { orphanSweep } from '../../src/engine/maintenance/handlers/orphan-sweep.ts'
import { createMetrics } from '../../src/engine/metrics.ts'
import { cancelOrphans, sweepOrphans } from '../../src/engine/orphan-sweep.ts'
import { findOrphans } from '../../src/engine/orphans.ts'
import { pauseJob } from '../../src/engine/pause.ts'
import { captureLog } from '../support/captured-log.ts'
import { createTestEngine } from '../support/engine.ts'
import { findViolations } from '../support/invariants.ts'
import { maintenanceContext } from '../support/maintenance.ts'
import { plansOf } from '../support/plans.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

let v: Verbs
beforeAll(async () => {
  v = await createVerbs()
})
afterEach(async () => {
  await sql('truncate coppice.job, coppice.job_event, coppice.wake_receipt, coppice.assignee')
})
afterAll(() => v.close())

const sql = (text: string, parameters: unknown[] = []) => v.test.pool.query(text, parameters)
const page = { size: 100, backwards: false, after: null, before: null }

/** A handler's context that counts; it remembers from run to run. */
function sweeper(slice?: number) {
  const metrics = createMetrics()
  const log = captureLog()
  let changes = 0
  const changed = () => {
    changes += 1
  }
  const context = maintenanceContext(v.db, { metrics, logger: log.logger, changed })
  const handler = orphanSweep(1000, slice)
  return {
    run: () => handler.run(context),
    context,
    log,
    counted: async () => (await metrics.orphansCancelled.get()).values[0]!.value,
    get changes() {
      return changes
    },
  }
}

/** Ends or removes jobs by plain SQL, as another program might; their log goes along, so that only their children are odd. */
async function endByHand(ids: string[], state: string) {
  if (state === 'deleted') {
    await sql('delete from coppice.job where id = any($1)', [ids])
    return
  }
  await sql(
    `with ended as (
       update coppice.job j set state = $2, version = j.version + 1, completion_epoch = j.completion_epoch + 1,
         finished_at = now(), cancel_code = case when $2 = 'cancelled' then 'requested' end
       from coppice.job before where j.id = before.id and j.id = any($1) returning j.*, before.state as was)
     insert into coppice.job_event
       (kind, job_id, tree_id, parent_id, type, "from", "to", phase, wave, attempt, version, actor)
     select 'moved', id, tree_id, parent_id, type, was, state, phase, wave, attempt, version, 'by hand' from ended`,
    [ids, state],
  )
}

/** A parent with a queued, a running, a waiting, a paused and a completed child; the waiting one has a child of its own. */
async function family(parent: object = {}) {
  const [id] = await v.enqueue({
    type: 'p',
    ...parent,
    children: [
      { type: 'a', key: 'running' },
      { type: 'b', key: 'completed' },
      { type: 'p', key: 'waiting', children: [{ type: 'x', key: 'below' }] },
      { type: 'x', key: 'queued' },
      { type: 'x', key: 'paused' },
    ],
  })
  const held = await v.claim()
  await v.complete(...held.filter((job) => job.key === 'completed'))
  const { rows } = await sql('select id, key from coppice.job where tree_id = $1 and key is not null', [id])
  const ids = Object.fromEntries(rows.map((row) => [row.key, row.id])) as Record<string, string>
  await pauseJob(v.db, ids.paused!, { actor: 'test' })
  return { id: id!, ids, running: held.find((job) => job.key === 'running')! }
}

const states = async (treeId: string) =>
  Object.fromEntries(
    (await sql('select key, state from coppice.job where tree_id = $1 and key is not null', [treeId])).rows.map(
      (row) => [row.key, row.state],
    ),
  )
const UNTOUCHED = {
  running: 'running',
  completed: 'completed',
  waiting: 'waiting',
  below: 'queued',
  queued: 'queued',
  paused: 'paused',
}
const CANCELLED = {
  running: 'cancelled',
  completed: 'completed',
  waiting: 'cancelled',
  below: 'cancelled',
  queued: 'cancelled',
  paused: 'cancelled',
}

describe('active children of a parent that was', () => {
  it.each([
    ['completed', 'parent_completed', 'parent job completed'],
    ['failed', 'parent_failed', 'parent job completed'],
    ['cancelled', 'parent_cancelled', 'parent job cancelled'],
    ['deleted', 'parent_deleted', 'parent job deleted'],
  ])('%s by hand are cancelled with everything below, and for that', async (state, code, reason) => {
    const { id, ids, running } = await family()
    await endByHand([id], state)
    const sweep = sweeper()
    await sweep.run()
    expect(await states(id)).toEqual(CANCELLED)
    for (const key of ['running', 'waiting', 'below', 'queued', 'paused']) {
      expect(await v.row(ids[key]!)).toMatchObject({ cancel_code: code, cancel_reason: reason, open_children: 0 })
    }
    const { rows } = await sql(
      `select distinct actor from coppice.job_event where "to" = 'cancelled' and job_id <> $1`,
      [id],
    )
    expect(rows).toEqual([{ actor: 'reconciler' }])
    expect(await sweep.counted()).toBe(5)
    expect(sweep.changes).toBe(1)
    expect(sweep.log.messages()).toEqual(['Orphans cancelled: their parent has ended or is gone'])
    // Its result is refused.
    expect((await v.complete(running)).stale).toEqual([running.id])
    // Nobody but another program completes a job that waits.
    const violations = (await findViolations(v.test.pool)).filter(({ invariant }) => invariant !== 'only legal moves')
    expect(violations).toEqual([])
    await sweep.run()
    expect(await sweep.counted()).toBe(5)
  })

  it('completed by hand under KEEP go on, and so do those of a parent that lives or keeps them in good order', async () => {
    const kept = await family({ orphanPolicy: 'keep' })
    await endByHand([kept.id], 'completed')
    const living = await family()
    const sweep = sweeper()
    await sweep.run()
    expect(await states(kept.id)).toEqual(UNTOUCHED)
    expect(await states(living.id)).toEqual(UNTOUCHED)
    expect(await sweep.counted()).toBe(0)
    expect(await findOrphans(v.db, page)).toMatchObject({ edges: [] })
  })

  it('deleted by hand are cancelled also under KEEP: what a missing parent wanted is not known', async () => {
    const { id } = await family({ orphanPolicy: 'keep' })
    await endByHand([id], 'deleted')
    await sweeper().run()
    expect(await states(id)).toEqual(CANCELLED)
  })

  it('ended by hand are found however far the rotating slice is, by what the parent counts', async () => {
    const families = [await family(), await family(), await family()]
    await endByHand([families[2]!.id], 'completed')
    await sweeper(1).run()
    expect(await states(families[2]!.id)).toEqual(CANCELLED)
    expect(await states(families[0]!.id)).toEqual(UNTOUCHED)
  })
})

describe('the rotating slice', () => {
  it('finds within a round what no counter shows, a bounded number of parents at a time', async () => {
    const ids = (
      await v.enqueue(...Array.from({ length: 10 }, () => ({ type: 'p', children: [{ type: 'x' }] })))
    ).sort()
    await endByHand([ids[7]!], 'deleted')
    // Its counter says that nothing is open.
    await endByHand([ids[9]!], 'failed')
    await sql('update coppice.job set open_children = 0 where id = $1', [ids[9]])
    const sweep = sweeper(3)
    const cancelled = []
    for (let run = 0; run < 4; run++) {
      await sweep.run()
      cancelled.push(await sweep.counted())
    }
    expect(cancelled).toEqual([0, 0, 1, 2])
    // The fourth run came to the end: the next begins again.
    expect(sweep.context.state).toBeNull()
    expect(await findViolations(v.test.pool)).toEqual([])
  })

  it('takes up where the last process left off, or begins when what it remembers is of another kind', async () => {
    const ids = (await v.enqueue(...Array.from({ length: 4 }, () => ({ type: 'p', children: [{ type: 'x' }] })))).sort()
    await endByHand([ids[3]!], 'deleted')
    const first = sweeper(2)
    await first.run()
    const second = sweeper(2)
    await second.context.remember(first.context.state)
    await second.run()
    expect([await first.counted(), await second.counted()]).toEqual([0, 1])
    await endByHand([ids[0]!], 'deleted')
    const third = sweeper(2)
    await third.context.remember('elsewhere')
    await third.run()
    expect(await third.counted()).toBe(1)
  })
})

describe('a parent that has ended and counts what is not there', () => {
  it('is put right, and not looked at again', async () => {
    const [id] = await v.enqueue({ type: 'a' })
    await v.complete(...(await v.claim()))
    await sql('update coppice.job set open_children = 2 where id = $1', [id])
    const sweep = sweeper()
    await sweep.run()
    expect(await v.row(id!)).toMatchObject({ state: 'completed', open_children: 0 })
    expect(await sweep.counted()).toBe(0)
  })
})

describe('a dry run', () => {
  it('lists what a full round then cancels, in pages, both ways', async () => {
    const families = await Promise.all(
      [1, 2, 3].map(() =>
        v.enqueue({
          type: 'p',
          children: [{ type: 'x' }, { type: 'x' }, { type: 'p', children: [{ type: 'x' }] }],
        }),
      ),
    )
    await v.enqueue({ type: 'p', children: [{ type: 'x' }] })
    await endByHand([families[0]![0]!, families[1]![0]!], 'failed')
    await endByHand([families[2]![0]!], 'deleted')
    const all = (await findOrphans(v.db, page)).edges
    expect(all).toHaveLength(9)
    expect(new Set(all.map(({ node }) => `${node.parentId} ${node.parentBecame}`))).toEqual(
      new Set([`${families[0]![0]} failed`, `${families[1]![0]} failed`, `${families[2]![0]} deleted`]),
    )
    const ids = all.map(({ node }) => node.id)
    const pages = async (backwards: boolean) => {
      const found: string[][] = []
      for (let cursor: string | null = null, more = true; more; ) {
        const at = backwards ? { after: null, before: cursor } : { after: cursor, before: null }
        const { edges, hasNextPage, hasPreviousPage } = await findOrphans(v.db, { size: 4, backwards, ...at })
        found.push(edges.map(({ node }) => node.id))
        cursor = (backwards ? edges[0] : edges.at(-1))!.cursor
        more = backwards ? hasPreviousPage : hasNextPage
      }
      return found
    }
    expect(await pages(false)).toEqual([ids.slice(0, 4), ids.slice(4, 8), ids.slice(8)])
    expect(await pages(true)).toEqual([ids.slice(5), ids.slice(1, 5), ids.slice(0, 1)])
    const between = { size: 100, backwards: false, after: all[2]!.cursor, before: all[6]!.cursor }
    expect((await findOrphans(v.db, between)).edges).toEqual(all.slice(3, 6))
    await expect(findOrphans(v.db, { ...page, after: 'x' })).rejects.toMatchObject({ code: 'BAD_REQUEST' })

    expect(await sweepOrphans(v.db, { actor: 'test' })).toEqual({ parents: 3, cancelled: 12 })
    expect((await findOrphans(v.db, page)).edges).toEqual([])
    expect(await sweepOrphans(v.db, { actor: 'test' })).toEqual({ parents: 0, cancelled: 0 })
  })

  it('goes through any number of parents', async () => {
    const ids = (
      await v.enqueue(...Array.from({ length: 2500 }, () => ({ type: 'p', children: [{ type: 'x' }] })))
    ).sort()
    await endByHand([ids[5]!, ids[1700]!, ids[2499]!], 'deleted')
    expect((await findOrphans(v.db, page)).edges.map(({ node }) => node.parentId)).toEqual([
      ids[5],
      ids[1700],
      ids[2499],
    ])
    expect(await sweepOrphans(v.db, { actor: 'test' })).toEqual({ parents: 3, cancelled: 3 })
  })
})

it('an engine sweeps a full round when it is asked to, counts, and names who asked', async () => {
  const [id] = await v.enqueue({ type: 'p', children: [{ type: 'x' }, { type: 'x' }] })
  await endByHand([id!], 'deleted')
  // Not started, lest its own sweep comes first.
  const { engine, close } = await createTestEngine({ test: v.test, start: false })
  try {
    expect(await engine.sweepOrphans({ actor: 'ann' })).toEqual({ parents: 1, cancelled: 2 })
    expect(await engine.metrics.metrics()).toMatch(/^coppice_orphans_cancelled_total 2$/m)
  } finally {
    await close()
  }
  const { rows } = await sql(`select actor from coppice.job_event where "to" = 'cancelled'`)
  expect(rows).toEqual([{ actor: 'ann' }, { actor: 'ann' }])
})

it('a sweep that finds a child whose parent turns out to be open, or to keep it, leaves it', async () => {
  const [id] = await v.enqueue({ type: 'p', children: [{ type: 'x' }] })
  // As found a moment ago; the parent waits again by now.
  expect(await cancelOrphans(v.db, { parentId: id!, treeId: id! }, 'test')).toBe(0)
  await sql(`update coppice.job set orphan_policy = 'keep' where id = $1`, [id])
  await endByHand([id!], 'failed')
  expect(await cancelOrphans(v.db, { parentId: id!, treeId: id! }, 'test')).toBe(0)
  expect(await findViolations(v.test.pool)).toEqual([])
})

it('reads the parents of its slice and nothing else, by indexes', async () => {
  await sql(`
    insert into coppice.job (id, tree_id, parent_id, depth, type, state, child_count, open_children)
    select p, p, null, 0, 'p', 'waiting', 100, 1 from (select md5('p' || n)::uuid p from generate_series(1, 500) n) parents
    union all
    select md5(n || 'c' || m)::uuid, md5('p' || n)::uuid, md5('p' || n)::uuid, 1, 'x',
      case when m = 1 then 'queued' else 'completed' end, 0, 0
    from generate_series(1, 500) n, generate_series(1, 100) m`)
  for (const analyzed of [false, true]) {
    if (analyzed) await sql('analyze coppice.job')
    const plans = await plansOf(
      v.db,
      (db) => orphanSweep(1000, 200).run(maintenanceContext(db)),
      async () => {},
    )
    expect(plans.map((plan) => plan.name)).toEqual(['orphans.ended-parents', 'orphans.look'])
    for (const plan of plans) {
      expect(plan.text, plan.text).not.toMatch(/Seq Scan/)
      // Two probes for each parent of the slice.
      expect(plan.read, plan.text).toBeLessThan(1000)
    }
  }
})
