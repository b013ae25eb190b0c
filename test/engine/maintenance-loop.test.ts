import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type Database, openDatabase } from '../../src/db/database.ts'
import { statement } from '../../src/db/statement.ts'
import type { MaintenanceContext, MaintenanceHandler } from '../../src/engine/maintenance/handler.ts'
import { createMaintenanceLoop, type MaintenanceLoop } from '../../src/engine/maintenance/loop.ts'
import { createMetrics } from '../../src/engine/metrics.ts'
import { captureLog } from '../support/captured-log.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { until } from '../support/until.ts'

let test: TestDatabase
let db: Database
const loops: MaintenanceLoop[] = []
beforeAll(async () => {
  test = await createTestDatabase()
  db = openDatabase({ connectionString: test.connectionString, schema: test.schema })
})
afterEach(async () => {
  await Promise.all(loops.splice(0).map((loop) => loop.stop({ deadlineMs: 500 })))
  await test.pool.query('delete from coppice.maintenance')
})
afterAll(async () => {
  await db.close()
  await test.drop()
})

function startLoop(handlers: MaintenanceHandler[], options: { changed?: () => void } = {}) {
  const log = captureLog()
  const loop = createMaintenanceLoop({ db, handlers, logger: log.logger, metrics: createMetrics(), ...options })
  loops.push(loop)
  loop.start()
  return { loop, log }
}

/** A handler that notes when it runs; `work` is what it does. */
function noted(
  name: string,
  intervalMs: number,
  work: (context: MaintenanceContext) => Promise<void> = async () => {},
) {
  const starts: number[] = []
  const handler: MaintenanceHandler = {
    name,
    intervalMs,
    async run(context) {
      starts.push(performance.now())
      await work(context)
    },
  }
  return Object.assign(handler, { starts })
}

const hang = () => new Promise<void>(() => {})
const rowOf = async (name: string) =>
  (await test.pool.query('select * from coppice.maintenance where name = $1', [name])).rows[0]

describe('maintenance loop', () => {
  it('runs each handler at its own interval, and starting twice changes nothing', async () => {
    const often = noted('often', 100)
    const seldom = noted('seldom', 500)
    const { loop } = startLoop([often, seldom])
    loop.start()
    await until(() => often.starts.length > 10 && seldom.starts.length > 2)
    for (const { starts, intervalMs } of [often, seldom]) {
      const gaps = starts.slice(1).map((at, index) => at - starts[index]!)
      expect(Math.min(...gaps)).toBeGreaterThanOrEqual(0.9 * intervalMs)
    }
    expect(loop.handlers).toMatchObject([
      { name: 'often', failures: 0, lastError: null },
      { name: 'seldom', failures: 0, lastError: null },
    ])
    expect(await rowOf('seldom')).toMatchObject({ error: null, finished_at: expect.any(Date) })
  })

  it('goes on when a handler throws, and says so once until it works again (case 30)', async () => {
    let broken = true
    const bad = noted('bad', 50, async () => {
      if (broken) throw new Error('no such luck')
    })
    const good = noted('good', 50)
    const { loop, log } = startLoop([bad, good])
    await until(() => bad.starts.length > 4 && good.starts.length > 4)
    expect(log.messages().filter((text) => text.includes('failed'))).toEqual([
      'maintenance: bad failed; it is tried again',
    ])
    expect((await rowOf('bad')).error).toBe('no such luck')
    expect(loop.handlers[0]!.failures).toBeGreaterThan(3)
    broken = false
    await until(() => log.messages().includes('maintenance: bad works again'))
    expect(loop.handlers[0]!.lastError).toBeNull()
    expect((await rowOf('bad')).error).toBeNull()
  })

  it('leaves a handler that hangs behind: the others go on, and so does it elsewhere (case 30)', async () => {
    const signals: AbortSignal[] = []
    const stuck = noted('stuck', 50, async ({ signal }) => {
      signals.push(signal)
      await hang()
    })
    const good = noted('good', 50)
    const { log } = startLoop([{ ...stuck, deadlineMs: 300 }, good])
    await until(() => signals[0]?.aborted)
    const elsewhere = noted('stuck', 50)
    startLoop([elsewhere])
    const seen = good.starts.length
    await until(() => elsewhere.starts.length > 3 && good.starts.length > seen + 3)
    // It never overlaps itself.
    expect(signals).toHaveLength(1)
    expect(log.messages()).toContain(
      'maintenance: stuck: it has not ended after 300 ms; it is started again once it has',
    )
  })

  it('starts a handler again that ends after its deadline', async () => {
    let release = () => {}
    const slow = noted('slow', 50, () => new Promise((resolve) => (release = resolve)))
    const { loop, log } = startLoop([{ ...slow, deadlineMs: 100 }])
    await until(() => loop.handlers[0]!.lastError)
    expect(slow.starts).toHaveLength(1)
    release()
    await until(() => slow.starts.length === 2)
    release()
    await until(() => log.messages().includes('maintenance: slow works again'))
  })

  it('runs a handler in one process at a time, at one pace for all', async () => {
    let running = 0
    let most = 0
    const work = async () => {
      most = Math.max(most, ++running)
      await delay(30)
      running -= 1
    }
    const handlers = Array.from({ length: 6 }, () => noted('shared', 100, work))
    const began = performance.now()
    for (const handler of handlers) startLoop([handler])
    await until(() => handlers.flatMap((handler) => handler.starts).length > 15)
    expect(most).toBe(1)
    const starts = handlers.flatMap((handler) => handler.starts).sort((a, b) => a - b)
    expect(starts.length).toBeLessThanOrEqual((performance.now() - began) / 90 + 1)
    const gaps = starts.slice(1).map((at, index) => at - starts[index]!)
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(100)
  })

  it('keeps its turn for as long as it works', async () => {
    let running = 0
    let most = 0
    const work = async () => {
      most = Math.max(most, ++running)
      await delay(1000)
      running -= 1
    }
    const handlers = [noted('long', 50, work), noted('long', 50, work)]
    for (const handler of handlers) startLoop([{ ...handler, turnMs: 300 }])
    await until(() => handlers.flatMap((handler) => handler.starts).length >= 3)
    expect(most).toBe(1)
  })

  it('takes over from a process that vanished in the middle of a run, when its turn is over', async () => {
    const began = performance.now()
    await test.pool.query(
      `insert into coppice.maintenance (name, held_by, held_until, started_at)
       values ('orphan', gen_random_uuid(), now() + interval '1 second', now())`,
    )
    const orphan = noted('orphan', 50)
    startLoop([orphan])
    await until(() => orphan.starts.length > 0)
    expect(orphan.starts[0]! - began).toBeGreaterThanOrEqual(990)
  })

  it('is not misled by a database clock that was set back', async () => {
    await test.pool.query(
      `insert into coppice.maintenance (name, held_by, held_until, finished_at) values
         ('held', gen_random_uuid(), now() + interval '1 day', null),
         ('done', null, null, now() + interval '1 day')`,
    )
    const handlers = [noted('held', 1000), noted('done', 1000)]
    startLoop(handlers)
    await until(() => handlers.every((handler) => handler.starts.length > 0))
  })

  it('tells a run that has lost its turn', async () => {
    let reason: unknown
    const loser = noted('lost', 50, async ({ signal }) => {
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      reason ??= signal.reason
    })
    startLoop([{ ...loser, turnMs: 150 }])
    await until(async () => (await rowOf('lost'))?.held_by)
    await test.pool.query(`update coppice.maintenance set held_by = gen_random_uuid() where name = 'lost'`)
    await until(() => reason)
    expect(reason).toMatchObject({ message: 'another process has taken over' })
    // The other one's turn is its own.
    expect((await rowOf('lost')).held_by).not.toBeNull()
  })

  it('runs at once when nudged, and knows its handlers', async () => {
    const calm = noted('calm', 60_000)
    const { loop } = startLoop([calm])
    await until(() => calm.starts.length === 1)
    await until(() => !loop.handlers[0]!.running)
    loop.nudge('calm')
    await until(() => calm.starts.length === 2, { timeout: 2000 })
    expect(() => loop.nudge('unknown')).toThrow(RangeError)
    expect(() => startLoop([calm, calm])).toThrow(RangeError)
  })

  it('hands a handler what its last run remembered, in whichever process that was', async () => {
    const seen: unknown[] = []
    const rotating = () =>
      noted('rotating', 50, async ({ state, remember }) => {
        seen.push(state)
        await remember({ after: seen.length })
      })
    const first = startLoop([rotating()])
    await until(() => seen.length === 2)
    await first.loop.stop()
    const before = seen.length
    startLoop([rotating()])
    await until(() => seen.length > before)
    expect(seen.slice(0, before + 1)).toEqual([null, ...Array.from({ length: before }, (_, n) => ({ after: n + 1 }))])
  })

  it('passes on that something changed', async () => {
    let changes = 0
    const changer = noted('changer', 60_000, async ({ changed }) => changed())
    startLoop([changer], {
      changed: () => {
        changes += 1
      },
    })
    await until(() => changes === 1)
  })

  it('drains when it stops: runs under way end, no other begins (case 30)', async () => {
    let ended = false
    const work = noted('work', 50, async () => {
      await delay(300)
      ended = true
    })
    const { loop } = startLoop([work])
    await until(() => work.starts.length === 1)
    await loop.stop()
    expect(ended).toBe(true)
    expect(await rowOf('work')).toMatchObject({ held_by: null, error: null })
    loop.start()
    loop.nudge('work')
    await delay(300)
    expect(work.starts).toHaveLength(1)
  })

  it('does not wait for ever when it stops', async () => {
    const stuck = noted('stuck', 50, hang)
    const heeding = noted('heeding', 50, async ({ signal }) => {
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
    })
    const { loop } = startLoop([stuck, heeding])
    await until(() => stuck.starts.length === 1 && heeding.starts.length === 1)
    const began = performance.now()
    await loop.stop({ deadlineMs: 200 })
    expect(performance.now() - began).toBeLessThan(200 + 1000 + 300)
    expect(loop.handlers.map((handler) => handler.running)).toEqual([true, false])
    // Nobody has to wait for a turn that this process can no longer use.
    await until(async () => (await rowOf('stuck')).held_by === null)
  })

  it('survives its database connections being cut', async () => {
    const steady = noted('steady', 50, async ({ db }) => {
      await db.query(statement('test.sleep', () => 'select pg_sleep(0.05)'))
    })
    startLoop([steady])
    for (let cut = 0; cut < 5; cut++) {
      const seen = steady.starts.length
      await until(() => steady.starts.length > seen + 1)
      await test.pool.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and application_name = 'coppice'`,
      )
    }
    const seen = steady.starts.length
    await until(() => steady.starts.length > seen + 3)
  })
})
