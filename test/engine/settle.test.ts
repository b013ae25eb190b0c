import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openDatabase } from '../../src/db/database.ts'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import { treeBucket } from '../../src/engine/locks.ts'
import { pauseJob } from '../../src/engine/pause.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { findViolations } from '../support/invariants.ts'
import { until } from '../support/until.ts'
import { addWorker, createVerbs, type Verbs } from '../support/verbs.ts'

let v: Verbs
beforeEach(async () => {
  v = await createVerbs()
})
afterEach(async () => {
  expect(await findViolations(v.test.pool)).toEqual([])
  await v.close()
})

const roots = (n: number) => v.enqueue(...Array.from({ length: n }, () => ({ type: 'a' })))
const retry = { kind: 'retry', delayMs: 0, error: { message: 'again', code: 'NETWORK' } } as const

describe('settle', () => {
  it('settles 499 of 500 when PostgreSQL refuses one result, which becomes FAILED with VALIDATION (case 59)', async () => {
    const ids = await roots(500)
    const held = await v.claim(500)
    expect(held).toHaveLength(500)
    // The engine checks results before it settles them; this one went past the check.
    const bad = held[123]!
    const report = await settle(
      v.db,
      held.map((job) => ({ job, outcome: { kind: 'completed', result: job === bad ? 'a\0b' : 'fine' } })),
      { actor: 'test' },
    )
    expect(report.settled).toHaveLength(500)
    expect(report.refused.map((refusal) => refusal.id)).toEqual([bad.id])
    const states = await v.test.pool.query(
      'select state, count(*)::int from coppice.job where id = any($1) group by 1 order by 1',
      [ids],
    )
    expect(states.rows).toEqual([
      { state: 'completed', count: 499 },
      { state: 'failed', count: 1 },
    ])
    expect(await v.row(bad.id)).toMatchObject({ error_code: 'VALIDATION', result: null })
  })

  it('fails a parent whose children PostgreSQL refuses, and writes none of them', async () => {
    const [id] = await v.enqueue({ type: 'p' })
    const held = await v.hold(id!)
    const children = await v.prepare([{ type: 'a' }, { type: 'a' }])
    const report = await v.end(held, {
      kind: 'waiting',
      children: children.map((child, index) => (index === 1 ? { ...child, payload: '"\\u0000"' } : child)),
    })
    expect(report.refused.map((refusal) => refusal.id)).toEqual([id])
    expect(await v.row(id!)).toMatchObject({ state: 'failed', error_code: 'VALIDATION', child_count: 0 })
    expect((await v.test.pool.query('select 1 from coppice.job where parent_id = $1', [id])).rows).toEqual([])
  })

  it('recognises its own work when the answer to COMMIT was lost (case 60)', async () => {
    const [leaf, retried, parent] = await v.enqueue({ type: 'a' }, { type: 'b' }, { type: 'p' })
    const held = await v.claim()
    const of = (id: string | undefined) => held.find((job) => job.id === id)!
    const items = [
      { job: of(leaf), outcome: { kind: 'completed', result: 1 } as const },
      { job: of(retried), outcome: retry },
      { job: of(parent), outcome: { kind: 'waiting', children: await v.prepare([{ type: 'c' }]) } as const },
    ]
    await losingCommits(v, async (db) => {
      await expect(settle(db, items.slice(0, 2), { actor: 'test' })).rejects.toThrow(/terminat|closed/i)
      await expect(settle(db, items.slice(2), { actor: 'test' })).rejects.toThrow(/terminat|closed/i)
    })
    expect(await v.row(leaf!)).toMatchObject({ state: 'completed', version: 3 })
    expect(await v.row(parent!)).toMatchObject({ state: 'waiting', child_count: 1 })
    const again = await settle(v.db, items, { actor: 'test' })
    expect(again.settled.sort()).toEqual([leaf, retried, parent].sort())
    expect(again.stale).toEqual([])
    expect(await v.row(leaf!)).toMatchObject({ state: 'completed', version: 3, completion_epoch: 1 })
    expect(await v.row(retried!)).toMatchObject({ state: 'queued', retry_count: 1 })
    expect(await v.row(parent!)).toMatchObject({ state: 'waiting', child_count: 1, open_children: 1 })
  })

  it('recognises its own work where the retry of a job that was to be paused has paused it', async () => {
    const [id] = await roots(1)
    const held = await v.hold(id!)
    await pauseJob(v.db, id!, { actor: 'test' })
    expect((await v.end(held, retry)).settled).toEqual([id])
    expect(await v.row(id!)).toMatchObject({ state: 'paused', retry_count: 1 })
    expect(await v.end(held, retry)).toMatchObject({ settled: [id], stale: [] })
    expect(await v.row(id!)).toMatchObject({ state: 'paused', retry_count: 1 })
  })

  it('refuses an attempt whose job was taken over, whatever it brings (case 39, in the database)', async () => {
    const [id] = await roots(1)
    const first = await v.hold(id!)
    await v.end(first, retry)
    const second = await v.hold(id!)
    for (const outcome of [
      { kind: 'completed', result: 'late' },
      { kind: 'failed', error: { message: 'late', code: 'UNKNOWN' } },
      retry,
      { kind: 'waiting', children: await v.prepare([{ type: 'c' }]) },
    ] as const) {
      expect(await v.end(first, outcome)).toMatchObject({ settled: [], stale: [id] })
    }
    expect(await v.row(id!)).toMatchObject({ state: 'running', claim_token: second.claimToken, child_count: 0 })
    await v.complete(second)
  })

  it('goes on while another holds the exclusive lock of one of the trees', async () => {
    const ids = await roots(20)
    const bucket = (id: string | undefined) => treeBucket(id!)
    const one = ids[0]!
    // Trees share their locks by buckets: one that is sure to have another lock.
    const other = ids.find((id) => bucket(id) !== bucket(one))!
    const held = (await v.claim()).filter((job) => job.id === one || job.id === other)
    const client = await v.test.pool.connect()
    try {
      await client.query('begin')
      await client.query('select pg_advisory_xact_lock($1, $2)', [v.db.lockSpace, bucket(one)])
      const settling = v.complete(...held)
      await until(async () => (await v.row(other)).state === 'completed', { what: 'the other tree to settle' })
      expect((await v.row(one)).state).toBe('running')
      await client.query('rollback')
      expect((await settling).settled.sort()).toEqual([one, other].sort())
    } finally {
      await client.query('rollback')
      client.release()
    }
  })
})

describe('claim', () => {
  it('goes by queue, priority, runAt, id, and first come first served among equals', async () => {
    const now = Date.now()
    const given = [
      { type: 'a', queue: 'q1', priority: 5 },
      { type: 'b', queue: 'q1', priority: -1 },
      { type: 'a', queue: 'q2', priority: -9 },
      { type: 'a', queue: 'q1', priority: 0, runAt: new Date(now - 1000) },
      { type: 'c', queue: 'q1', priority: 0, runAt: new Date(now - 2000) },
      { type: 'a', queue: 'q1', priority: 0, runAt: new Date(now + 3_600_000) },
      { type: 'b', queue: 'q1', priority: 5 },
    ]
    const ids = await v.enqueue(...given)
    const order: number[] = []
    for (let job = await v.claim(1); job.length > 0; job = await v.claim(1)) {
      order.push(ids.indexOf(job[0]!.id))
      await v.complete(job[0]!)
    }
    expect(order).toEqual([1, 4, 3, 0, 6, 2])
  })

  it('takes only known types and served queues, whatever is in front', async () => {
    await v.enqueue(...Array.from({ length: 50 }, () => ({ type: 'unknown-here', priority: -5 })))
    const [far, near] = await v.enqueue({ type: 'a', queue: 'far' }, { type: 'a', queue: 'near' })
    const claim = (queues: string[] | null) =>
      claimJobs(v.db, { workerId: v.workerId, types: ['a', 'b'], queues, limit: 10 })
    const held = await claim(['near', 'nowhere'])
    expect(held.map((job) => job.id)).toEqual([near])
    const rest = await claim(null)
    expect(rest.map((job) => job.id)).toEqual([far])
    await v.complete(...held, ...rest)
  })

  it('hands every job to one of many workers at once', async () => {
    const ids = await roots(400)
    const workers = await Promise.all(Array.from({ length: 8 }, () => addWorker(v.test)))
    const claimed = await Promise.all(
      workers.map(async (workerId) => {
        const mine = []
        for (let idle = 0; idle < 5; ) {
          const jobs = await claimJobs(v.db, { workerId, types: ['a'], queues: null, limit: 20 })
          idle = jobs.length === 0 ? idle + 1 : 0
          mine.push(...jobs)
        }
        return mine
      }),
    )
    expect(
      claimed
        .flat()
        .map((job) => job.id)
        .sort(),
    ).toEqual(ids.sort())
    await v.complete(...claimed.flat())
  })

  it('is refused for a worker that was declared dead', async () => {
    await roots(1)
    const workerId = await addWorker(v.test)
    await v.test.pool.query('update coppice.worker set dead_at = now() where id = $1', [workerId])
    const request = { workerId, types: ['a'], queues: null, limit: 1 }
    await expect(claimJobs(v.db, request)).rejects.toMatchObject({ code: 'WORKER_DEAD' })
    await v.complete(...(await v.claim()))
  })

  it('passes over jobs whose assignee is not active or is unknown', async () => {
    const [unknown] = await v.enqueue({ type: 'a', assigneeId: 'nobody', priority: -5 })
    const [free] = await roots(1)
    expect((await v.claim()).map((job) => job.id)).toEqual([free])
    await v.test.pool.query(`insert into coppice.assignee (id, status) values ('nobody', 'active')`)
    expect((await v.claim()).map((job) => job.id)).toEqual([unknown])
  })
})

/** Runs `act` on a pool whose commits reach the server, but whose answers never come back. */
async function losingCommits(verbs: Verbs, act: (db: Verbs['db']) => Promise<void>): Promise<void> {
  const db = openDatabase({ connectionString: verbs.test.connectionString })
  db.pool.on('connect', (client) => {
    const query = client.query.bind(client) as (...args: unknown[]) => Promise<unknown>
    client.query = (async (...args: unknown[]) => {
      const result = await query(...args)
      if (args[0] !== 'commit') return result
      ;(client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy()
      throw new Error('Connection terminated unexpectedly')
    }) as typeof client.query
  })
  await act(db)
  await db.close()
}
