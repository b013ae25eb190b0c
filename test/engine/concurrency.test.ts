import { describe, expect, it } from 'vitest'
import { transaction } from '../../src/db/transaction.ts'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import type { NewJob } from '../../src/engine/job.ts'
import { idsOf, useLimitedClaims } from '../support/limited-claims.ts'
import { plansOf } from '../support/plans.ts'
import { addWorker } from '../support/verbs.ts'

const claims = useLimitedClaims()
const { claim, fresh } = claims

/** So many jobs of one type and key, in one statement. */
async function enqueueMany(count: number, { type = 'a', concurrencyKey = 'A' }: Partial<NewJob> = {}) {
  await claims.v.enqueue(...Array.from({ length: count }, () => ({ type, concurrencyKey })))
}

describe('a claim', () => {
  it('takes no more of a key than the limit, whatever is running', async () => {
    const { v } = claims
    await enqueueMany(5, { type: 'b', concurrencyKey: 'x' })
    const first = await claim({ limit: 2 })
    expect(first).toHaveLength(2)
    expect(await claim()).toHaveLength(1)
    expect(await claim()).toHaveLength(0)
    await v.complete(...first)
    expect(await claim()).toHaveLength(2)
    expect(await claim()).toHaveLength(0)
  })

  it('counts each key by itself, the empty one too, and each type', async () => {
    const { v } = claims
    const ids = await v.enqueue(
      { type: 'a', concurrencyKey: 'x' },
      { type: 'a', concurrencyKey: 'x' },
      { type: 'a', concurrencyKey: 'y' },
      { type: 'a', concurrencyKey: '' },
      { type: 'a', concurrencyKey: '' },
      { type: 'b', concurrencyKey: 'x' },
    )
    expect(idsOf(await claim())).toEqual([0, 2, 3, 5].map((index) => ids[index]))
    expect(await claim()).toHaveLength(0)
  })

  it('goes by queue, priority, runAt, id, within a key and over everything', async () => {
    const { v } = claims
    const now = Date.now()
    const ids = await v.enqueue(
      { type: 'a', concurrencyKey: 'x', queue: 'q1', priority: 5 },
      { type: 'a', concurrencyKey: 'x', queue: 'q1', priority: 1, runAt: new Date(now - 1000) },
      { type: 'a', concurrencyKey: 'x', queue: 'q1', priority: 1, runAt: new Date(now - 2000) },
      { type: 'a', concurrencyKey: 'x', queue: 'q1', priority: 0, runAt: new Date(now + 3_600_000) },
      { type: 'a', concurrencyKey: 'x', queue: 'q0', priority: 9 },
      { type: 'c', queue: 'q1', priority: 2 },
      { type: 'c', queue: 'q0', priority: 7 },
      { type: 'b', concurrencyKey: 'x', queue: 'q1', priority: 0 },
    )
    const order: number[] = []
    for (let job = (await claim({ limit: 1 }))[0]; job; job = (await claim({ limit: 1 }))[0]) {
      order.push(ids.indexOf(job.id))
      await v.complete(job)
    }
    expect(order).toEqual([6, 4, 7, 2, 1, 5, 0])
    expect((await v.row(ids[3]!)).state).toBe('queued')
  })

  it('takes from served queues only, past whatever a key has in others', async () => {
    const { v } = claims
    await v.enqueue(...Array.from({ length: 20 }, () => ({ type: 'a', concurrencyKey: 'x', queue: 'a-far' })))
    const [near, next] = await v.enqueue(
      { type: 'a', concurrencyKey: 'x', queue: 'near', priority: 3 },
      { type: 'a', concurrencyKey: 'x', queue: 'near', priority: 7 },
    )
    const [held] = await claim({ queues: ['near', 'nowhere'] })
    expect(held?.id).toBe(near)
    await v.complete(held!)
    expect(idsOf(await claim({ queues: ['near'] }))).toEqual([next])
  })

  it('leaves jobs whose assignee is not active, and takes those behind', async () => {
    const { v } = claims
    await v.db.pool.query(`insert into ${v.db.tables.assignee} values ('off', 'paused') on conflict (id) do nothing`)
    const [, open] = await v.enqueue(
      { type: 'a', concurrencyKey: 'x', assigneeId: 'off' },
      { type: 'a', concurrencyKey: 'x' },
    )
    expect(idsOf(await claim())).toEqual([open])
  })

  it('takes the next one of a key whose first ones others hold at this moment', async () => {
    const { v } = claims
    const [first, second] = await v.enqueue({ type: 'a', concurrencyKey: 'x' }, { type: 'a', concurrencyKey: 'x' })
    await transaction(v.db, async (tx) => {
      await tx.client.query(`select id from ${v.db.tables.job} where id = $1 for no key update`, [first])
      expect(idsOf(await claim())).toEqual([second])
    })
    expect(await claim()).toHaveLength(0)
  })

  it('waits for nobody: a key in the middle of another claim is left, and to be looked at again', async () => {
    const { v } = claims
    const [, other] = await v.enqueue({ type: 'a', concurrencyKey: 'x' }, { type: 'a', concurrencyKey: 'y' })
    await transaction(v.db, async (tx) => {
      await tx.client.query(`select pg_advisory_xact_lock($1, hashtext('a' || chr(1) || 'x'))`, [
        (v.db.lockSpace + 1) | 0,
      ])
      expect(idsOf(await claim())).toEqual([other])
      expect(claims.limits.unfinished).toBe(true)
    })
    expect(await claim()).toHaveLength(1)
    expect(claims.limits.unfinished).toBe(false)
  })

  it('never takes more than the limit when many claim at the same moment', async () => {
    const { v } = claims
    const workers = await Promise.all(Array.from({ length: 12 }, () => addWorker(v.test)))
    const keys = ['k', 'l', 'm']
    for (let round = 0; round < 15; round++) {
      await v.enqueue(...keys.flatMap((key) => Array.from({ length: 8 }, () => ({ type: 'b', concurrencyKey: key }))))
      const held = (await Promise.all(workers.map((workerId) => claim({ workerId, limits: fresh(), limit: 5 })))).flat()
      // Those that met a lock look again, as workers do.
      for (let more = await claim(); more.length > 0; more = await claim()) held.push(...more)
      for (const key of keys) {
        const { rows } = await v.db.pool.query(
          `select count(*)::int as n from ${v.db.tables.job} where state = 'running' and concurrency_key = $1`,
          [key],
        )
        expect(rows[0].n).toBe(3)
      }
      expect(new Set(idsOf(held)).size).toBe(9)
      await v.complete(...held)
    }
  })

  it('counts jobs of a type without a limit here towards nothing, whatever key they have', async () => {
    await enqueueMany(5, { type: 'c', concurrencyKey: 'x' })
    expect(await claim()).toHaveLength(5)
  })

  it('has a worker that was declared dead refused', async () => {
    const { v } = claims
    await enqueueMany(1)
    const workerId = await addWorker(v.test)
    await v.db.pool.query(`update ${v.db.tables.worker} set dead_at = now() where id = $1`, [workerId])
    await expect(claim({ workerId })).rejects.toMatchObject({ code: 'WORKER_DEAD' })
    expect(await claim()).toHaveLength(1)
  })
})

describe('many keys', () => {
  it('have their turns: more open keys than one claim locks, and more blocked ones than one looks at', async () => {
    const { v } = claims
    const key = (n: number) => `k${String(n).padStart(5, '0')}`
    const blocked = 2500
    await v.enqueue(...Array.from({ length: blocked }, (_, n) => ({ type: 'a', concurrencyKey: key(n) })))
    // All of them run; behind each there is one more.
    await v.db.pool.query(`update ${v.db.tables.job} set state = 'running' where type = 'a'`)
    await v.enqueue(...Array.from({ length: blocked }, (_, n) => ({ type: 'a', concurrencyKey: key(n) })))
    const open = await v.enqueue(
      ...Array.from({ length: 250 }, (_, n) => ({ type: 'a', concurrencyKey: `open-${key(n)}` })),
    )
    const held: string[] = []
    let rounds = 0
    do {
      held.push(...idsOf(await claim({ limit: 1000 })))
      rounds += 1
    } while (claims.limits.unfinished)
    expect(held.sort()).toEqual(open.sort())
    // 1,000 + 1,000 + 500 blocked with 100 open, then 100 and 50.
    expect(rounds).toBe(5)
    // Not by moves: these rows have no events to be checked against.
    await claims.empty()
  })

  it('news in the middle of a round begins another one after it', async () => {
    const { v } = claims
    await v.enqueue(...Array.from({ length: 150 }, (_, n) => ({ type: 'a', concurrencyKey: `k${n}` })))
    expect(await claim({ limit: 1000 })).toHaveLength(100)
    expect(claims.limits.unfinished).toBe(true)
    claims.limits.news()
    expect(await claim({ limit: 1000 })).toHaveLength(50)
    expect(claims.limits.unfinished).toBe(true)
    expect(await claim({ limit: 1000 })).toHaveLength(0)
    expect(claims.limits.unfinished).toBe(false)
  })

  it('a claim that was filled does not leave what is behind it to chance', async () => {
    const { v } = claims
    await v.enqueue(...Array.from({ length: 150 }, (_, n) => ({ type: 'b', concurrencyKey: `k${n}` })))
    let claimed = 0
    let last: number
    // A worker claims on at once after a claim that was filled.
    do {
      last = (await claim({ limit: 10 })).length
      claimed += last
    } while (last === 10 || claims.limits.unfinished)
    expect(claimed).toBe(150)
  })
})

describe('blocked jobs in front', () => {
  const BLOCKED = 20_000

  it('cost nothing: the claim of another key reads none of them', async () => {
    const { v } = claims
    const { job } = v.db.tables
    const queue = (key: string, count: number) =>
      v.db.pool.query(
        `insert into ${job} (id, tree_id, type, concurrency_key)
         select id, id, 'a', $1 from (select gen_random_uuid() as id from generate_series(1, $2::int)) made`,
        [key, count],
      )
    await queue('A', BLOCKED)
    // The planner's statistics know of one key only, which is the worst that they can tell it.
    await v.db.pool.query(`analyze ${job}`)
    expect(await claim()).toHaveLength(1)
    await queue('B', 1)
    const keysRunning = async () =>
      (await v.db.pool.query(`select concurrency_key as key from ${job} where state = 'running' order by 1`)).rows
    const putBackB = () =>
      v.db.pool.query(`update ${job} set state = 'queued' where concurrency_key = 'B' and state = 'running'`)
    for (const queues of [null, ['default', 'other']]) {
      for (const prepare of ['select 1', `vacuum ${job}`, `analyze ${job}`]) {
        await v.db.pool.query(prepare)
        const plans = await plansOf(
          v.db,
          async (db) => {
            const request = { workerId: v.workerId, types: ['a', 'b', 'c'], queues, limit: 100, limits: fresh() }
            expect(await claimJobs(db, request)).toHaveLength(1)
            expect(await keysRunning()).toEqual([{ key: 'A' }, { key: 'B' }])
          },
          putBackB,
        )
        expect(plans.map((plan) => plan.name)).toEqual([
          'claim.open-keys',
          `claim.limited-${queues ? 'queues' : 'any-queue'}`,
        ])
        for (const plan of plans) expect(plan.read, plan.text).toBeLessThan(100)
      }
    }
    // Not by moves: these rows have no events to be checked against.
    await claims.empty()
  })

  it('nor do jobs of the key that are not due, or in queues that are not served', async () => {
    const { v } = claims
    const { job } = v.db.tables
    await v.db.pool.query(
      `insert into ${job} (id, tree_id, type, concurrency_key, queue, priority, run_at)
       select id, id, 'a', 'A', case when n % 2 = 0 then 'default' else 'a-far' end, -1,
         case when n % 2 = 0 then now() + interval '1 hour' else now() end
       from (select gen_random_uuid() as id, n from generate_series(1, $1::int) n) made`,
      [BLOCKED],
    )
    const [due] = await v.enqueue({ type: 'a', concurrencyKey: 'A' })
    await v.db.pool.query(`analyze ${job}`)
    const plans = await plansOf(
      v.db,
      async (db) => {
        const request = { workerId: v.workerId, types: ['a'], queues: ['default'], limit: 9, limits: fresh() }
        expect(idsOf(await claimJobs(db, request))).toEqual([due])
      },
      () => v.db.pool.query(`update ${job} set state = 'queued' where id = $1`, [due]),
    )
    for (const plan of plans) expect(plan.read, plan.text).toBeLessThan(100)
    await claims.empty()
  })
})
