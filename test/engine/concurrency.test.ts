import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { cancelJob, deleteJob } from '../../src/engine/cascade.ts'
import { archiveJob } from '../../src/engine/archive.ts'
import { type ClaimedJob, claimJobs } from '../../src/engine/claim.ts'
import { ClaimLimits } from '../../src/engine/claim-limits.ts'
import type { NewJob, Outcome } from '../../src/engine/job.ts'
import { recoverLostJobs } from '../../src/engine/lease/recovery.ts'
import { pauseJob } from '../../src/engine/pause.ts'
import { settle } from '../../src/engine/settle.ts'
import { transaction } from '../../src/db/transaction.ts'
import { findViolations } from '../support/invariants.ts'
import { addWorker, createVerbs, type Verbs } from '../support/verbs.ts'
import { pino } from 'pino'

const logger = pino({ level: 'silent' })
let v: Verbs
/** Limits of a worker of its own: `a` one for each key, `b` three, `c` none. */
let limits: ClaimLimits
const fresh = () => new ClaimLimits(new Map([['a', 1], ['b', 3]]))

beforeAll(async () => {
  v = await createVerbs()
})
beforeEach(async () => {
  await v.db.pool.query(`truncate ${v.db.tables.job} cascade`)
  await v.db.pool.query(`truncate ${v.db.tables.jobEvent}`)
  limits = fresh()
})
afterAll(async () => {
  expect(await findViolations(v.test.pool)).toEqual([])
  await v.close()
})

interface Claiming {
  limit?: number
  queues?: string[] | null
  workerId?: string
  limits?: ClaimLimits
}

const claim = ({ limit = 100, queues = null, workerId = v.workerId, limits: given = limits }: Claiming = {}) =>
  claimJobs(v.db, { workerId, types: ['a', 'b', 'c'], queues, limit, limits: given })

const idsOf = (jobs: readonly ClaimedJob[]) => jobs.map((job) => job.id)

/** So many jobs of one type and key, in one statement. */
async function enqueueMany(count: number, { type = 'a', concurrencyKey = 'A' }: Partial<NewJob> = {}) {
  await v.enqueue(...Array.from({ length: count }, () => ({ type, concurrencyKey })))
}

describe('a claim', () => {
  it('takes no more of a key than the limit, whatever is running', async () => {
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
    await v.db.pool.query(
      `insert into ${v.db.tables.assignee} values ('off', 'paused') on conflict (id) do nothing`,
    )
    const [, open] = await v.enqueue(
      { type: 'a', concurrencyKey: 'x', assigneeId: 'off' },
      { type: 'a', concurrencyKey: 'x' },
    )
    expect(idsOf(await claim())).toEqual([open])
  })

  it('takes the next one of a key whose first ones others hold at this moment', async () => {
    const [first, second] = await v.enqueue(
      { type: 'a', concurrencyKey: 'x' },
      { type: 'a', concurrencyKey: 'x' },
    )
    await transaction(v.db, async (tx) => {
      await tx.client.query(`select id from ${v.db.tables.job} where id = $1 for no key update`, [first])
      expect(idsOf(await claim())).toEqual([second])
    })
    expect(await claim()).toHaveLength(0)
  })

  it('waits for nobody: a key in the middle of another claim is left, and to be looked at again', async () => {
    const [, other] = await v.enqueue({ type: 'a', concurrencyKey: 'x' }, { type: 'a', concurrencyKey: 'y' })
    await transaction(v.db, async (tx) => {
      await tx.client.query(`select pg_advisory_xact_lock($1, hashtext('a' || chr(1) || 'x'))`, [
        (v.db.lockSpace + 1) | 0,
      ])
      expect(idsOf(await claim())).toEqual([other])
      expect(limits.unfinished).toBe(true)
    })
    expect(await claim()).toHaveLength(1)
    expect(limits.unfinished).toBe(false)
  })

  it('never takes more than the limit when many claim at the same moment', async () => {
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
    await enqueueMany(1)
    const workerId = await addWorker(v.test)
    await v.db.pool.query(`update ${v.db.tables.worker} set dead_at = now() where id = $1`, [workerId])
    await expect(claim({ workerId })).rejects.toMatchObject({ code: 'WORKER_DEAD' })
    expect(await claim()).toHaveLength(1)
  })
})

describe('many keys', () => {
  it('have their turns: more open keys than one claim locks, and more blocked ones than one looks at', async () => {
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
    let claims = 0
    do {
      held.push(...idsOf(await claim({ limit: 1000 })))
      claims += 1
    } while (limits.unfinished)
    expect(held.sort()).toEqual(open.sort())
    // 1,000 + 1,000 + 500 blocked with 100 open, then 100 and 50.
    expect(claims).toBe(5)
    // Not by moves: these rows have no events to be checked against.
    await v.db.pool.query(`truncate ${v.db.tables.job} cascade`)
  })

  it('news in the middle of a round begins another one after it', async () => {
    await v.enqueue(...Array.from({ length: 150 }, (_, n) => ({ type: 'a', concurrencyKey: `k${n}` })))
    expect(await claim({ limit: 1000 })).toHaveLength(100)
    expect(limits.unfinished).toBe(true)
    limits.news()
    expect(await claim({ limit: 1000 })).toHaveLength(50)
    expect(limits.unfinished).toBe(true)
    expect(await claim({ limit: 1000 })).toHaveLength(0)
    expect(limits.unfinished).toBe(false)
  })

  it('a claim that was filled does not leave what is behind it to chance', async () => {
    await v.enqueue(...Array.from({ length: 150 }, (_, n) => ({ type: 'b', concurrencyKey: `k${n}` })))
    const held = await claim({ limit: 10 })
    for (let rounds = 0; limits.unfinished && rounds < 100; rounds++) held.push(...(await claim({ limit: 10 })))
    expect(held).toHaveLength(150)
  })
})

describe('blocked jobs in front', () => {
  const BLOCKED = 20_000

  it('cost nothing: the claim of another key reads none of them', async () => {
    const queued = `insert into ${v.db.tables.job} (id, tree_id, type, concurrency_key)
      select id, id, 'a', $1 from (select gen_random_uuid() as id from generate_series(1, $2::int)) made`
    await v.db.pool.query(queued, ['A', BLOCKED])
    expect(await claim()).toHaveLength(1)
    await v.db.pool.query(queued, ['B', 1])
    for (const analyzed of [false, true]) {
      if (analyzed) await v.db.pool.query(`analyze ${v.db.tables.job}`)
      const plans = await plansOf(() => claim({ limits: fresh() }))
      const limited = plans.filter((plan) => plan.text.includes('coppice:claim.'))
      expect(limited.map((plan) => /coppice:(\S+)/.exec(plan.text)?.[1])).toEqual([
        'claim.open-keys',
        'claim.limited-any-queue',
      ])
      // The rows that any node read, or read and dropped, add up to a handful.
      for (const plan of limited) expect(plan.rows, plan.tree).toBeLessThan(200)
      // Undone with its transaction: the job of B is there again.
    }
    expect((await claim()).map((job) => job.concurrencyKey)).toEqual([undefined])
    expect(await claim()).toHaveLength(0)
    await v.db.pool.query(`truncate ${v.db.tables.job} cascade`)
  })
})

describe('a slot is free again in the very transaction that', () => {
  /** Two jobs of one key, the first of them held. */
  async function held(): Promise<[ClaimedJob, string]> {
    const [, second] = await v.enqueue(
      { type: 'a', concurrencyKey: 'x', maxRetries: 0 },
      { type: 'a', concurrencyKey: 'x' },
    )
    const [first] = await claim()
    expect(await claim()).toHaveLength(0)
    return [first!, second!]
  }
  const error = { code: 'UNKNOWN', message: 'x' } as const
  const far = 3_600_000
  const outcomes: Record<string, Outcome> = {
    'completes the job': { kind: 'completed', result: null },
    'fails it at its last attempt': { kind: 'failed', error },
    'puts it back for a retry': { kind: 'retry', error, delayMs: far },
    'puts it back without one': { kind: 'requeue', delayMs: far, reason: 'snooze' },
  }
  it.each(Object.entries(outcomes))('%s', async (_what, outcome) => {
    const [first, second] = await held()
    await v.end(first, outcome)
    expect(idsOf(await claim())).toEqual([second])
  })

  it('lets it wait for children', async () => {
    const [first, second] = await held()
    await v.spawn(first, [{ type: 'c', runAt: new Date(Date.now() + far) }])
    expect(idsOf(await claim())).toEqual([second])
  })

  it('cancels it', async () => {
    const [first, second] = await held()
    await cancelJob(v.db, first.id, { actor: 'test' })
    expect(idsOf(await claim())).toEqual([second])
  })

  it('deletes it', async () => {
    const [first, second] = await held()
    await deleteJob(v.db, first.id, { actor: 'test' })
    expect(idsOf(await claim())).toEqual([second])
  })

  it('archives it', async () => {
    const [first, second] = await held()
    await archiveJob(v.db, first.id, { actor: 'test' })
    expect(idsOf(await claim())).toEqual([second])
  })

  it('pauses it at the end of its attempt, and not before', async () => {
    const [first, second] = await held()
    await pauseJob(v.db, first.id, { actor: 'test' })
    expect(await claim()).toHaveLength(0)
    await v.end(first, outcomes['puts it back for a retry']!)
    expect((await v.row(first.id)).state).toBe('paused')
    expect(idsOf(await claim())).toEqual([second])
  })

  it('recovers it from a dead worker', async () => {
    const [, second] = await v.enqueue(
      { type: 'a', concurrencyKey: 'x', maxRetries: 0 },
      { type: 'a', concurrencyKey: 'x' },
    )
    const workerId = await addWorker(v.test)
    expect(await claim({ workerId })).toHaveLength(1)
    await v.db.pool.query(`update ${v.db.tables.worker} set dead_at = now() where id = $1`, [workerId])
    expect(await claim()).toHaveLength(0)
    expect(await recoverLostJobs(v.db, { actor: 'test', logger })).toEqual({ retried: 0, failed: 1 })
    expect(idsOf(await claim())).toEqual([second])
  })

  it('and not before that transaction is committed', async () => {
    const [first, second] = await held()
    await transaction(v.db, async (tx) => {
      await tx.client.query(`update ${v.db.tables.job} set result = '1' where id = $1`, [first.id])
      const settling = settle(v.db, [{ job: first, outcome: outcomes['completes the job']! }], { actor: 'test' })
      expect(await claim()).toHaveLength(0)
      return settling
    }).catch(() => {})
    expect(idsOf(await claim())).toEqual([second])
  })

  it('a retry counts anew', async () => {
    const [, second] = await v.enqueue({ type: 'a', concurrencyKey: 'x' }, { type: 'a', concurrencyKey: 'x' })
    const [first] = await claim()
    await v.end(first!, { kind: 'retry', error, delayMs: 0 })
    // The other one is first by now; while it runs, the retry does not.
    const [now] = await claim()
    expect(now!.id).toBe(second)
    expect(await claim()).toHaveLength(0)
    await v.complete(now!)
    const [again] = await claim()
    expect([again!.id, again!.retryCount]).toEqual([first!.id, 1])
    expect(await claim()).toHaveLength(0)
  })
})
