import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import type { BulkReport } from '../../src/engine/bulk/bulk.ts'
import type { JobFilter } from '../../src/engine/reads/job-filter.ts'
import { createEngine, type Engine, type NewJob } from '../../src/index.ts'
import { findViolations } from '../support/invariants.ts'
import { until } from '../support/until.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

let v: Verbs
let engine: Engine
beforeAll(async () => {
  v = await createVerbs()
  engine = createEngine({ connectionString: v.test.connectionString, schema: v.test.schema, actor: 'ops' })
})
afterEach(async () => {
  expect(await findViolations(v.test.pool, { schema: v.test.schema })).toEqual([])
})
afterAll(async () => {
  await engine.stop()
  await v.close()
})

type Name = 'cancelJobs' | 'retryJobs' | 'archiveJobs' | 'deleteJobs'

const sql = async (text: string, values: unknown[] = []) =>
  (await v.test.pool.query(text.replaceAll('coppice.', `${v.test.schema}.`), values)).rows

/** The figures of a report, without the sample. */
function figures({ sample: _, ...rest }: BulkReport) {
  return rest
}

/** Jobs of one run by key: state and archived or not. */
async function statesOf(type: string): Promise<Record<string, string>> {
  const rows = await sql(
    `select key, state || case when archived_at is null then '' else ' archived' end as is from coppice.job where type = $1`,
    [type],
  )
  return Object.fromEntries(rows.map((row) => [row.key, row.is]))
}

test('cancels what matches, oldest first and up to the limit, with a reason and who did it', async () => {
  const type = randomUUID()
  const ids: string[] = []
  for (let n = 0; n < 12; n++) ids.push(...(await v.enqueue({ type, queue: n % 2 ? 'odd' : 'even' })))
  const filter = { types: [type], queues: ['even'] }
  const dry = await engine.cancelJobs(filter, { dryRun: true, limit: 4 })
  expect(figures(dry)).toEqual({ dryRun: true, matched: 6, changed: 4, cancelledDescendants: 0 })
  expect(dry.sample.map(({ id, state }) => [id, state])).toEqual([0, 2, 4, 6].map((n) => [ids[n], 'queued']))
  const report = await engine.cancelJobs(filter, { limit: 4, reason: 'INC-1', actor: 'ann' })
  expect(figures(report)).toEqual({ dryRun: false, matched: 6, changed: 4, cancelledDescendants: 0 })
  expect(report.sample.map(({ id, state }) => [id, state])).toEqual([0, 2, 4, 6].map((n) => [ids[n], 'cancelled']))
  expect(report.sample[0]).toMatchObject({ cancelReason: 'INC-1', cancelCode: 'requested' })
  const [event] = await sql(
    `select actor, reason, "to" from coppice.job_event where job_id = $1 order by version desc limit 1`,
    [ids[0]],
  )
  expect(event).toEqual({ actor: 'ann', reason: 'INC-1', to: 'cancelled' })
  expect(figures(await engine.cancelJobs(filter))).toMatchObject({ matched: 2, changed: 2 })
  expect(figures(await engine.cancelJobs(filter))).toMatchObject({ matched: 0, changed: 0 })
})

test('a parent whose children are all cancelled is woken once; one that matches too is not woken in between', async () => {
  const type = randomUUID()
  const children = Array.from({ length: 3 }, () => ({ type }))
  const [alone, both] = await v.enqueue({ type: 'p', children }, { type, key: 'both', children })
  const report = await engine.cancelJobs({ types: [type] })
  expect(figures(report)).toEqual({ dryRun: false, matched: 7, changed: 7, cancelledDescendants: 0 })
  expect(await v.row(alone!)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1, open_children: 0 })
  expect(await v.row(both!)).toMatchObject({ state: 'cancelled', wave: 0, open_children: 0 })
  const codes = await sql(`select cancel_code, count(*)::int as n from coppice.job where parent_id = $1 group by 1`, [
    both,
  ])
  expect(codes).toEqual([{ cancel_code: 'parent_cancelled', n: 3 }])
  await engine.deleteJobs({ ids: [`JB_${alone}`] })
})

test('deletes with what is below, and shows the deleted ones as they were', async () => {
  const [root] = await v.enqueue({ type: 'p', children: [{ type: 'a', children: [{ type: 'b' }] }, { type: 'a' }] })
  const filter = { ids: [`JB_${root}`] }
  expect(figures(await engine.deleteJobs(filter, { dryRun: true }))).toEqual({
    dryRun: true,
    matched: 1,
    changed: 1,
    cancelledDescendants: 3,
  })
  const report = await engine.deleteJobs(filter)
  expect(figures(report)).toEqual({ dryRun: false, matched: 1, changed: 1, cancelledDescendants: 3 })
  expect(report.sample).toMatchObject([{ id: root, state: 'waiting' }])
  expect(await v.row(root!)).toBeUndefined()
  await engine.deleteJobs({ treeId: root! })
})

test('the sample is of the first ones in order, in whichever order they are done', async () => {
  const type = randomUUID()
  const trees = await v.enqueue(...Array.from({ length: 6 }, () => ({ type, children: [{ type: 'a' }] })))
  const flat = await v.enqueue(...Array.from({ length: 20 }, () => ({ type })))
  const report = await engine.deleteJobs({ types: [type] })
  expect(figures(report)).toMatchObject({ changed: 26, cancelledDescendants: 6 })
  expect(report.sample.map(({ id }) => id)).toEqual([...trees, ...flat].slice(0, 10))
  await engine.deleteJobs({ types: ['a'] })
})

test('thousands of jobs are done some hundreds to a transaction', { timeout: 120_000 }, async () => {
  const type = randomUUID()
  const wide = await v.enqueue({ type: 'p', children: Array.from({ length: 1800 }, () => ({ type })) })
  await v.enqueue(...Array.from({ length: 1700 }, () => ({ type })))
  await sql('analyze coppice.job')
  const report = await engine.cancelJobs({ types: [type] }, { limit: 10_000 })
  expect(figures(report)).toMatchObject({ matched: 3500, changed: 3500, cancelledDescendants: 0 })
  const [{ n, most }] = await sql(
    `select count(*)::int as n, max(jobs)::int as most from (
      select xid, count(*) as jobs from coppice.job_event where type = $1 and "to" = 'cancelled' group by xid) by_xid`,
    [type],
  )
  expect(n).toBeGreaterThanOrEqual(7)
  expect(most).toBeLessThanOrEqual(500)
  expect(await v.row(wide[0]!)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1 })
  await engine.deleteJobs({ types: [type], states: ['cancelled'] }, { limit: 10_000 })
  await engine.deleteJobs({ ids: wide })
})

test('a job that has gone on since it was found is left alone', async () => {
  const type = randomUUID()
  const [claimed, other] = await v.enqueue({ type }, { type })
  const client = await v.test.pool.connect()
  try {
    await client.query('begin')
    await client.query(
      `update ${v.test.schema}.job set state = 'running', version = version + 1, worker_id = $2, claim_token = $2,
        attempt = 1, claimed_at = now(), started_at = now() where id = $1`,
      [claimed, v.workerId],
    )
    await client.query(
      `insert into ${v.test.schema}.job_event (kind, job_id, tree_id, type, "from", "to", phase, wave, attempt, version, actor)
       values ('moved', $1, $1, $2, 'queued', 'running', 'ingest', 0, 1, 2, 'test')`,
      [claimed, type],
    )
    const cancelling = engine.cancelJobs({ types: [type], states: ['queued'] })
    await until(
      async () =>
        (await sql(`select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`))
          .length > 0,
      { what: 'the verb to wait for the row' },
    )
    // The other one is not held up by it.
    expect(await v.row(other!)).toMatchObject({ state: 'cancelled' })
    await client.query('commit')
    expect(figures(await cancelling)).toEqual({ dryRun: false, matched: 2, changed: 1, cancelledDescendants: 0 })
  } finally {
    client.release()
  }
  expect(await v.row(claimed!)).toMatchObject({ state: 'running' })
  await engine.cancelJob(claimed!)
})

test('an empty filter and a limit out of range are refused by each', async () => {
  for (const name of ['cancelJobs', 'retryJobs', 'archiveJobs', 'deleteJobs'] as const) {
    for (const filter of [
      {},
      { archived: false },
      { archived: null },
      { search: '' },
      { metadata: {} },
      { types: null },
    ]) {
      await expect(engine[name](filter, { dryRun: true }), JSON.stringify(filter)).rejects.toMatchObject({
        code: 'VALIDATION',
        issues: [{ path: ['filter'], message: 'must say which jobs: an empty one is refused' }],
      })
    }
    for (const limit of [0, 10_001, 1.5]) {
      await expect(engine[name]({ types: ['x'] }, { limit })).rejects.toMatchObject({ issues: [{ path: ['limit'] }] })
    }
    await expect(engine[name]({ ids: ['JB_7'] })).rejects.toMatchObject({ code: 'VALIDATION' })
  }
  expect(figures(await engine.deleteJobs({ ids: [] }))).toMatchObject({ matched: 0, changed: 0 })
})

/** A random tree: which jobs are of the kind that the filter names, what is done to each before, and what is below. */
interface Shape {
  named: boolean
  keep: boolean
  before: 'nothing' | 'cancel' | 'pause' | 'archive'
  children: Shape[]
}

const shape: fc.Arbitrary<Shape> = fc.letrec<{ shape: Shape }>((tie) => ({
  shape: fc.record({
    named: fc.boolean(),
    keep: fc.boolean(),
    before: fc.constantFrom('nothing', 'nothing', 'nothing', 'cancel', 'pause', 'archive'),
    children: fc.oneof(
      { maxDepth: 3 },
      fc.constant<Shape[]>([]),
      fc.array(tie('shape'), { minLength: 1, maxLength: 3 }),
    ),
  }),
})).shape

/** Enqueues trees, and does to each job what its shape says. Keys are the places in the trees. */
async function plant(shapes: readonly Shape[], type: string): Promise<void> {
  const steps: [string, Shape['before']][] = []
  const job = ({ named, keep, before, children }: Shape, key: string): NewJob => {
    steps.push([key, before])
    return {
      type,
      key,
      queue: named ? 'named' : 'other',
      orphanPolicy: keep ? 'keep' : 'cancel',
      ...(children.length > 0 && { children: children.map((child, n) => job(child, `${key}.${n}`)) }),
    }
  }
  await v.enqueue(...shapes.map((one, n) => job(one, `${n}`)))
  const ids = new Map((await sql(`select key, id from coppice.job where type = $1`, [type])).map((r) => [r.key, r.id]))
  for (const [key, before] of steps) {
    const id = ids.get(key)
    if (before === 'cancel') await engine.cancelJob(id).catch(ignore)
    if (before === 'pause') await engine.pauseJob(id).catch(ignore)
    if (before === 'archive') await engine.archiveJob(id)
  }
}

function ignore(error: { code?: string }): void {
  if (error.code !== 'INVALID_STATE' && error.code !== 'PARENT_GONE') throw error
}

/** What the single verb does to each job that the filter names and that it may be done to, from the top down. */
async function oneByOne(name: Name, type: string): Promise<number> {
  const may: Record<Name, string> = {
    cancelJobs: `j.state in ('queued', 'running', 'waiting', 'paused')`,
    archiveJobs: 'true',
    deleteJobs: 'true',
    retryJobs: `j.state in ('failed', 'cancelled') and (j.parent_id is null or exists (select from coppice.job p
      where p.id = j.parent_id and (p.state not in ('completed', 'failed', 'cancelled') or p.orphan_policy = 'keep')))`,
  }
  const rows = await sql(
    `select id from coppice.job j where type = $1 and queue = 'named' and archived_at is null and ${may[name]}
     order by depth, id`,
    [type],
  )
  const verb = {
    cancelJobs: 'cancelJob',
    archiveJobs: 'archiveJob',
    deleteJobs: 'deleteJob',
    retryJobs: 'retryJob',
  } as const
  for (const { id } of rows) await engine[verb[name]](id).catch(ignore)
  return rows.length
}

test('each verb does what the single one does from the top down, and its dry run foretells it', {
  timeout: 180_000,
}, async () => {
  const given = fc.record({
    name: fc.constantFrom<Name>('cancelJobs', 'retryJobs', 'archiveJobs', 'deleteJobs'),
    shapes: fc.array(shape, { minLength: 1, maxLength: 3 }),
  })
  await fc.assert(
    fc.asyncProperty(given, async ({ name, shapes }) => {
      const [many, single] = [randomUUID(), randomUUID()]
      await plant(shapes, many)
      await plant(shapes, single)
      const before = await statesOf(many)
      const filter: JobFilter = { types: [many], queues: ['named'] }
      const dry = await engine[name](filter, { dryRun: true })
      expect(await statesOf(many)).toEqual(before)
      const report = await engine[name](filter)
      expect(figures({ ...report, dryRun: true })).toEqual(figures(dry))
      expect(report.changed).toBe(await oneByOne(name, single))
      expect(await statesOf(many)).toEqual(await statesOf(single))
      const cancelled = await sql(
        `select count(*)::int as n from coppice.job_event where type = $1 and "to" = 'cancelled' and "from" is not null`,
        [many],
      )
      const same = await sql(
        `select count(*)::int as n from coppice.job_event where type = $1 and "to" = 'cancelled' and "from" is not null`,
        [single],
      )
      expect(cancelled).toEqual(same)
      expect(await findViolations(v.test.pool, { schema: v.test.schema })).toEqual([])
      await sql(
        `set coppice.writer = 'engine'; delete from coppice.job; delete from coppice.job_event; reset coppice.writer`,
      )
    }),
    { numRuns: 60 },
  )
})
