import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { setAssignee } from '../../src/engine/assignee.ts'
import type { NewJob } from '../../src/engine/job.ts'
import { pauseJob } from '../../src/engine/pause.ts'
import { type Explaining, explaining, fromNow } from '../support/explaining.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

let v: Verbs
let x: Explaining
beforeAll(async () => {
  v = await createVerbs()
  x = explaining(v)
})
beforeEach(async () => {
  await v.db.pool.query(`truncate ${v.db.tables.job}, ${v.db.tables.jobEvent}, ${v.db.tables.assignee} cascade`)
  await x.worker({ host: 'forge', types: ['a', 'b', 'p'], heartbeat_at: fromNow(0) })
})
afterAll(() => v.close())

/** Ids of a tree's jobs by their keys. */
async function tree(job: NewJob): Promise<Record<string, string>> {
  const [root] = await v.enqueue(job)
  const { rows } = await v.test.pool.query(
    `select id, key from ${v.test.schema}.job where tree_id = $1 and key is not null`,
    [root],
  )
  return Object.fromEntries(rows.map(({ id, key }) => [key, id]))
}

/** A parent and so many children of type `a`, keys `a0`, `a1`, … */
const family = (count: number, more: Partial<NewJob> = {}): NewJob => ({
  type: 'p',
  key: 'p',
  children: Array.from({ length: count }, (_, n) => ({ type: 'a', key: `a${n}` })),
  ...more,
})

test('a parent with open children: how many, which, and what holds them up', async () => {
  const { p, a0, a1, a2 } = await tree(family(3, { timeouts: { wait: '2h', onWaitTimeout: 'aggregate' } }))
  await v.complete(await v.hold(a1!))
  await v.hold(a2!)
  await x.set(a2!, { claimed_at: fromNow(-7_500_000) })
  await x.set(p!, { waiting_since: fromNow(-310_500) })
  const [open, ...others] = await x.explain(p!)
  expect(others).toEqual([])
  const { waiting_since: since } = await v.row(p!)
  expect(open).toMatchObject({
    reason: 'open_children',
    // What runs comes before what is in line.
    jobs: [a2, a0],
    count: 2,
    facts: {
      open: 2,
      openAtLeast: false,
      total: 3,
      children: [`JB_${a0}`, `JB_${a2}`],
      leaves: [
        { job: `JB_${a2}`, type: 'a', key: 'a2', depth: 1, reason: 'running', nextAt: expect.any(String) },
        { job: `JB_${a0}`, type: 'a', key: 'a0', depth: 1, reason: 'in_line', nextAt: null },
      ],
      waitingSince: since.toISOString(),
      waitLimitMs: 7_200_000,
      waitEndsAt: new Date(since.getTime() + 7_200_000).toISOString(),
      onWaitTimeout: 'aggregate',
    },
    nextAt: new Date(since.getTime() + 7_200_000),
    next: 'When all of them have ended, it aggregates. If it still waits after 2 h, it aggregates what there is.',
  })
  expect(open!.sentence).toBe(
    `It has waited 5 min 10 s for 2 of its 3 children. Held up by JB_${a2} (a a2), which has been running for 2 h 5 min on forge ` +
      `(worker WK_${v.workerId}, pid 1); by JB_${a0} (a a0), which is in line.`,
  )
})

test('four levels down: the leaf that holds everything up, and why', async () => {
  const { root, child, leaf } = await tree({
    type: 'p',
    key: 'root',
    children: [
      {
        type: 'p',
        key: 'child',
        children: [{ type: 'p', children: [{ type: 'p', children: [{ type: 'c', key: 'leaf' }] }] }],
      },
    ],
  })
  const [open] = await x.explain(root!)
  expect(open).toMatchObject({ reason: 'open_children', count: 1, jobs: [leaf, child], next: expect.any(String) })
  expect(open).toMatchObject({
    facts: {
      leaves: [{ job: `JB_${leaf}`, depth: 4, reason: 'no_worker', sentence: expect.stringContaining('type c') }],
    },
  })
  expect(open!.sentence).toBe(
    `It has waited less than a second for its only child. Held up by JB_${leaf} (c leaf), which waits for a worker: none that lives knows its type c.`,
  )
})

test('of many leaves those come first that need somebody', async () => {
  await setAssignee(v.db, 'ada', 'stopped', { actor: 'test' })
  const ids = await tree({
    type: 'p',
    key: 'p',
    children: [
      { type: 'a', key: 'line' },
      { type: 'a', key: 'later', runAt: fromNow(60_000) },
      { type: 'a', key: 'paused' },
      { type: 'a', key: 'ada', assigneeId: 'ada' },
      { type: 'c', key: 'nobody' },
      { type: 'p', key: 'inner', children: [{ type: 'b', key: 'runs' }] },
      { type: 'p', key: 'empty', ephemeral: true, children: [{ type: 'b', key: 'gone' }] },
    ],
  })
  await pauseJob(v.db, ids.paused!, { actor: 'test' })
  await x.set(ids.gone!, { state: 'completed' })
  await v.hold(ids.runs!)
  const [open] = await x.explain(ids.p!)
  const leaves = open!.facts.leaves as { key: string; depth: number }[]
  expect(leaves.map(({ key }) => key)).toEqual(['empty', 'paused', 'ada', 'nobody', 'runs', 'later', 'line'])
  expect(leaves[4]).toMatchObject({ depth: 2 })
  expect(open).toMatchObject({
    count: 7,
    jobs: [ids.empty, ids.paused, ids.ada, ids.nobody, ids.runs],
    sentence: expect.stringMatching(
      /^It has waited less than a second for all of its 7 children\. .*; and by 4 others\.$/,
    ),
  })
})

test('a wide parent: children are counted so far, a few are named', async () => {
  const { p } = await tree(family(1200))
  const [open] = await x.explain(p!)
  expect(open).toMatchObject({ count: 1200, facts: { open: 1200, openAtLeast: true } })
  expect(open!.jobs).toHaveLength(5)
})

/** So many parents, one below the other, and a leaf. */
function chain(parents: number, leaf: string): NewJob {
  let job: NewJob = { type: 'a', key: leaf }
  for (let n = 0; n < parents; n++) job = { type: 'p', children: [job] }
  return job
}

test('a chain deeper than the walk says so', async () => {
  const { top, end } = await tree({ ...chain(33, 'end'), key: 'top' })
  expect((await x.explain(top!))[0]).toMatchObject({ facts: { leaves: [{ depth: 33, key: 'end' }] } })
  await v.spawn(await v.hold(end!), [chain(33, 'further')])
  expect((await x.explain(top!))[0]).toMatchObject({
    reason: 'open_children',
    count: 1,
    facts: { leaves: [] },
    sentence: 'It has waited less than a second for its only child. Its open descendants go deeper than 64 levels.',
  })
})

test('two reasons: open children first, then the assignee that will be missed; then only that', async () => {
  await setAssignee(v.db, 'ada', 'paused', { actor: 'test' })
  const { p, a0 } = await tree(family(1, { assigneeId: 'ada' }))
  expect(await x.reasons(p!)).toEqual(['open_children', 'assignee_not_active'])
  await v.complete(await v.hold(a0!))
  const [withheld, ...others] = await x.explain(p!)
  expect(others).toEqual([])
  expect(withheld).toMatchObject({
    reason: 'assignee_not_active',
    facts: { assignee: 'AS_ada', status: 'paused' },
    sentence: expect.stringMatching(/has been paused for .*\. It is woken only while AS_ada is active\.$/),
  })
})

test('a parent whose wake is due: the edge has missed it', async () => {
  const { p, a0 } = await tree(family(1))
  await x.set(a0!, { state: 'completed' })
  const before = Date.now()
  const [wrong] = await x.explain(p!)
  expect(wrong).toMatchObject({ reason: 'wake_due', facts: { total: 1, counted: 1, waitingMs: expect.any(Number) } })
  expect(wrong!.sentence).toBe(
    'It has 1 child, none of them open: its wake is due. It has waited less than a second. Its counter says 1, which is wrong and will be repaired.',
  )
  await x.set(p!, { open_children: 0, waiting_since: fromNow(-3_600_500) })
  const [due, ...others] = await x.explain(p!)
  expect(others).toEqual([])
  expect(due!.sentence).toBe('It has 1 child, none of them open: its wake is due. It has waited 1 h.')
  expect(due!.nextAt!.getTime() - before).toBeGreaterThan(500)
  expect(due!.nextAt!.getTime() - before).toBeLessThan(10_000)
  await x.set(a0!, { archived_at: fromNow(0) })
  await x.set(p!, { child_count: 0, waiting_since: null })
  expect((await x.explain(p!))[0]!.sentence).toBe('It has no children: its wake is due.')
})

test('a wake that is withheld: ephemeral, archived, or to fail by a child', async () => {
  const { p, a0 } = await tree(family(1, { ephemeral: true, timeouts: { wait: '1h' } }))
  expect(await x.reasons(p!)).toEqual(['open_children'])
  await x.set(a0!, { state: 'completed' })
  const [ephemeral, ...others] = await x.explain(p!)
  expect(others).toEqual([])
  expect(ephemeral).toMatchObject({
    reason: 'wake_withheld',
    facts: { why: 'ephemeral', waitingMs: expect.any(Number) },
    next: 'If it still waits after 1 h, it fails.',
    nextAt: expect.any(Date),
    sentence:
      'It has 1 child, none of them open, but is ephemeral: recovery never wakes it. It has waited less than a second.',
  })

  await x.set(p!, { archived_at: fromNow(0) })
  expect(await x.explain(p!)).toMatchObject([
    { reason: 'wake_withheld', facts: { why: 'archived', archivedAt: expect.any(String) }, next: null, nextAt: null },
  ])
  // An archived one is not queued for anybody either.
  await x.set(p!, { state: 'queued' })
  expect(await x.explain(p!)).toMatchObject([
    { reason: 'wake_withheld', sentence: 'It is archived although it is queued: nothing claims or wakes it.' },
  ])

  await x.set(p!, { state: 'waiting', archived_at: null, failing_child_id: a0 })
  expect(await x.explain(p!)).toMatchObject([
    {
      reason: 'wake_withheld',
      facts: { why: 'failing_child', failingChild: `JB_${a0}` },
      jobs: [a0],
      next: 'The next tick of maintenance fails it, and cancels its active descendants.',
      nextAt: expect.any(Date),
      sentence: `It is to fail: its child JB_${a0} failed, which it does not bear.`,
    },
  ])
})

test('an archived child of a parent that has ended is no orphan: the sweep leaves it', async () => {
  const { p, a0 } = await tree(family(1))
  await x.set(p!, { state: 'failed', finished_at: fromNow(0) })
  expect(await x.reasons(a0!)).toContain('orphaned')
  await x.set(a0!, { archived_at: fromNow(0) })
  expect(await x.reasons(a0!)).toEqual(['wake_withheld'])
})

test('an orphan: its parent has ended or was deleted, without keeping it', async () => {
  const { p, a0 } = await tree(family(1))
  await x.set(p!, { state: 'failed', finished_at: new Date('2026-01-31T08:00:00Z') })
  const [orphan, ...others] = await x.explain(a0!)
  expect(others.map(({ reason }) => reason)).toEqual(['in_line'])
  expect(orphan).toMatchObject({
    reason: 'orphaned',
    jobs: [p],
    count: 1,
    facts: { parent: `JB_${p}`, parentState: 'failed', parentEndedAt: '2026-01-31T08:00:00.000Z' },
    next: expect.stringContaining('orphan sweep cancels it'),
    sentence: `It is an orphan: its parent JB_${p} (p) is failed since 2026-01-31T08:00:00Z.`,
  })
  await x.set(p!, { orphan_policy: 'keep' })
  expect(await x.reasons(a0!)).toEqual(['in_line'])
  await v.test.pool.query(`delete from ${v.test.schema}.job where id = $1`, [p])
  expect((await x.explain(a0!))[0]).toMatchObject({
    reason: 'orphaned',
    jobs: [],
    count: 0,
    facts: { parentState: null },
    sentence: `It is an orphan: its parent JB_${p} was deleted.`,
  })
})

test('below a paused ancestor a job moves, and says that nothing follows', async () => {
  const { top, mid, leaf } = await tree({
    type: 'p',
    key: 'top',
    children: [{ type: 'p', key: 'mid', children: [{ type: 'p', children: [{ type: 'a', key: 'leaf' }] }] }],
  })
  await pauseJob(v.db, mid!, { actor: 'test' })
  await pauseJob(v.db, top!, { actor: 'test' })
  const [first, ancestor, ...others] = await x.explain(leaf!)
  expect(others).toEqual([])
  expect(first).toMatchObject({ reason: 'in_line' })
  expect(ancestor).toMatchObject({
    reason: 'paused_ancestor',
    jobs: [mid, top],
    count: 2,
    facts: {
      ancestors: [
        { job: `JB_${mid}`, type: 'p' },
        { job: `JB_${top}`, type: 'p' },
      ],
    },
    sentence:
      `It is below JB_${mid} (p mid) and JB_${top} (p top), which are paused. ` +
      'It moves all the same, but nothing follows above until that is resumed.',
  })
  // The walk down ends at what is paused: there is nothing to be done further down.
  await x.set(top!, { state: 'waiting', paused_from: null })
  const [open] = await x.explain(top!)
  expect(open).toMatchObject({ jobs: [mid], facts: { leaves: [{ job: `JB_${mid}`, reason: 'paused', depth: 1 }] } })
  // A paused parent tells what it would wait for.
  expect(await x.explain(mid!)).toMatchObject([
    { reason: 'paused', facts: { from: 'waiting' } },
    { reason: 'open_children', facts: { leaves: [{ job: `JB_${leaf}`, reason: 'in_line', depth: 2 }] } },
  ])
})
