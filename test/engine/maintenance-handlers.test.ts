import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { Statement } from '../../src/db/statement.ts'
import { ValidationError } from '../../src/engine/errors.ts'
import type { MaintenanceHandler } from '../../src/engine/maintenance/handler.ts'
import { attemptTimeouts } from '../../src/engine/maintenance/handlers/attempt-timeouts.ts'
import { deadWorkers } from '../../src/engine/maintenance/handlers/dead-workers.ts'
import { failingParents } from '../../src/engine/maintenance/handlers/failing-parents.ts'
import { leaseRecovery } from '../../src/engine/maintenance/handlers/lease-recovery.ts'
import { waitTimeouts } from '../../src/engine/maintenance/handlers/wait-timeouts.ts'
import { maintenanceHandlers } from '../../src/engine/maintenance/handlers.ts'
import { HANDLER_NAMES } from '../../src/engine/maintenance/intervals.ts'
import { createMaintenanceLoop } from '../../src/engine/maintenance/loop.ts'
import { createMetrics } from '../../src/engine/metrics.ts'
import { createEngine } from '../../src/index.ts'
import { captureLog } from '../support/captured-log.ts'
import { findViolations } from '../support/invariants.ts'
import { maintenanceContext } from '../support/maintenance.ts'
import { until } from '../support/until.ts'
import { addWorker, createVerbs, type Verbs } from '../support/verbs.ts'

let v: Verbs
let log: ReturnType<typeof captureLog>
let changes: number
beforeAll(async () => {
  v = await createVerbs()
})
beforeEach(() => {
  log = captureLog()
  changes = 0
})
afterEach(async () => {
  expect(await findViolations(v.test.pool)).toEqual([])
  await v.test.pool.query('truncate coppice.job, coppice.job_event, coppice.wake_receipt, coppice.assignee')
})
afterAll(() => v.close())

async function run(handler: MaintenanceHandler, signal = new AbortController().signal): Promise<void> {
  const changed = () => {
    changes += 1
  }
  await handler.run(maintenanceContext(v.db, { logger: log.logger, signal, changed }))
}

const DAY = 86_400_000

const sql = (text: string, parameters: unknown[] = []) => v.test.pool.query(text, parameters)
const ago = (column: string, ms: number) =>
  sql(`update coppice.job set ${column} = now() - $1 * interval '1 millisecond' where ${column} is not null`, [ms])

describe('attempt timeouts', () => {
  it('ends an attempt past the limit of its phase and the margin, as a retry', async () => {
    const [id, unlimited, other] = await v.enqueue(
      { type: 'a', timeouts: { ingest: 1000 } },
      { type: 'a' },
      { type: 'a', timeouts: { aggregate: 1000 } },
    )
    const held = await v.claim()
    await ago('claimed_at', 10_900)
    await run(attemptTimeouts(1000))
    expect((await v.row(id!)).state).toBe('running')
    await ago('claimed_at', 11_100)
    await run(attemptTimeouts(1000))
    expect(await v.row(id!)).toMatchObject({ state: 'queued', retry_count: 1 })
    const { rows } = await sql(`select actor, detail from coppice.job_event where job_id = $1 and "from" = 'running'`, [
      id,
    ])
    expect(rows).toMatchObject([
      {
        actor: 'reconciler',
        detail: { error: { code: 'TIMEOUT', message: 'The attempt ran past its limit of 1000 ms.' } },
      },
    ])
    expect(log.messages()).toEqual([`꩜ Retry 1/2: a ingest | job:JB_${id}`])
    expect((await v.row(unlimited!)).state).toBe('running')
    expect((await v.row(other!)).state).toBe('running')
    expect(changes).toBe(1)
    expect((await v.complete(...held)).stale).toEqual([id])
  })

  it('fails it when its retries are spent, and looks at the limit of AGGREGATE there', async () => {
    const [parent] = await v.enqueue({
      type: 'p',
      maxRetries: 0,
      timeouts: { aggregate: 1000 },
      children: [{ type: 'a' }],
    })
    await v.complete(...(await v.claim()))
    const [held] = await v.claim()
    expect(held!.id).toBe(parent)
    await ago('claimed_at', 60_000)
    await run(attemptTimeouts(1000))
    expect(await v.row(parent!)).toMatchObject({ state: 'failed', error_code: 'TIMEOUT' })
    expect(log.messages()).toEqual([`꩜ Max retries exceeded (0): p aggregate | job:JB_${parent}`])
  })

  it('takes a limit that is no number, written by hand, for none', async () => {
    const [id] = await v.enqueue({ type: 'a' })
    await v.claim()
    await sql(`update coppice.job set timeouts = '{"ingest": "soon"}'`)
    await ago('claimed_at', 60_000)
    await run(attemptTimeouts(1000))
    expect((await v.row(id!)).state).toBe('running')
  })

  it('ends any number of attempts', async () => {
    await v.enqueue(...Array.from({ length: 700 }, () => ({ type: 'a', timeouts: { ingest: 1 } })))
    await v.claim(1000)
    await ago('claimed_at', 60_000)
    await run(attemptTimeouts(1000))
    expect((await sql('select state, count(*)::int from coppice.job group by 1')).rows).toEqual([
      { state: 'queued', count: 700 },
    ])
  })
})

describe('wait timeouts', () => {
  const waiting = (timeouts: object, more: object = {}) => ({
    type: 'p',
    timeouts: { wait: 1000, ...timeouts },
    children: [{ type: 'a' }],
    ...more,
  })

  it('fails a job that waited past its limit, with its children and for its parent', async () => {
    const [root] = await v.enqueue({ type: 'p', children: [waiting({}, { key: 'slow' })] })
    await ago('waiting_since', 900)
    await run(waitTimeouts(1000))
    expect(changes).toBe(0)
    await ago('waiting_since', 1100)
    await run(waitTimeouts(1000))
    const { rows } = await sql(
      'select depth, state, phase, error, error_code, cancel_reason from coppice.job order by depth',
    )
    expect(rows).toMatchObject([
      { depth: 0, state: 'queued', phase: 'aggregate' },
      { depth: 1, state: 'failed', error_code: 'TIMEOUT', error: expect.stringContaining('1000 ms') },
      { depth: 2, state: 'cancelled', cancel_reason: 'parent job completed' },
    ])
    expect((await v.row(root!)).wave).toBe(1)
    expect(changes).toBe(1)
  })

  it('wakes it with what there is, if it chose so', async () => {
    const [id] = await v.enqueue(waiting({ onWaitTimeout: 'aggregate' }))
    await ago('waiting_since', 1100)
    await run(waitTimeouts(1000))
    await run(waitTimeouts(1000))
    expect(await v.row(id!)).toMatchObject({ state: 'queued', phase: 'aggregate', wave: 1, open_children: 1 })
    const { rows } = await sql('select source, forced, wave from coppice.wake_receipt')
    expect(rows).toEqual([{ source: 'timeout', forced: true, wave: 1 }])
    expect(changes).toBe(1)
  })

  it('leaves alone what has no limit, is within it, does not wait, or has a limit that is no number', async () => {
    const [none, within, archived, text] = await v.enqueue(
      { type: 'p', children: [{ type: 'a' }] },
      waiting({ wait: 3_600_000 }),
      waiting({}),
      waiting({}),
    )
    await sql('update coppice.job set archived_at = now() where id = $1', [archived])
    await sql(`update coppice.job set timeouts = '{"wait": "soon"}' where id = $1`, [text])
    await ago('waiting_since', 60_000)
    await run(waitTimeouts(1000))
    for (const id of [none, within, archived, text]) expect((await v.row(id!)).state).toBe('waiting')
    await sql('update coppice.job set archived_at = null')
  })

  it('is not kept from the others by those whose assignee is not active', async () => {
    await sql(`insert into coppice.assignee (id, status) values ('ann', 'paused')`)
    const withheld = await v.enqueue(
      ...Array.from({ length: 250 }, () => waiting({ onWaitTimeout: 'aggregate' }, { assigneeId: 'ann' })),
    )
    await ago('waiting_since', 60_000)
    const free = await v.enqueue(...Array.from({ length: 150 }, () => waiting({ onWaitTimeout: 'aggregate' })))
    await sql(
      `update coppice.job set waiting_since = now() - interval '30 seconds' where id = any($1) and state = 'waiting'`,
      [free],
    )
    await run(waitTimeouts(1000))
    const count = async (ids: string[]) =>
      (await sql(`select count(*)::int from coppice.job where id = any($1) and state = 'waiting'`, [ids])).rows[0].count
    expect(await count(free)).toBe(0)
    expect(await count(withheld)).toBe(250)
    await sql(`update coppice.assignee set status = 'active'`)
    await run(waitTimeouts(1000))
    expect(await count(withheld)).toBe(0)
  })

  it('finds them by their deadline, so that waits within their limits cost nothing', async () => {
    await v.enqueue(...Array.from({ length: 300 }, () => waiting({ wait: 3_600_000 })))
    await sql('analyze coppice.job')
    const client = await v.test.pool.connect()
    try {
      const texts: string[] = []
      const query = async <Row>(statement: Statement<Row>) => {
        texts.push(v.db.text(statement))
        return [] as Row[]
      }
      await waitTimeouts(1000).run({ ...context(), db: { ...v.db, query } })
      const { rows } = await client.query(`explain (analyze, buffers off) ${texts[0]}`, [null, null, 100])
      const plan = rows.map((row) => row['QUERY PLAN']).join('\n')
      expect(plan).toContain('job_wait_deadline')
      expect(plan).not.toContain('Rows Removed')
    } finally {
      client.release()
    }
  })

  it('stops between two when it is told to', async () => {
    await v.enqueue(...Array.from({ length: 20 }, () => waiting({})))
    await ago('waiting_since', 60_000)
    const controller = new AbortController()
    const stopAfter = () => {
      changes += 1
      if (changes === 5) controller.abort()
    }
    await waitTimeouts(1000).run({ ...context(), signal: controller.signal, changed: stopAfter })
    expect((await sql(`select count(*)::int from coppice.job where state = 'failed'`)).rows[0].count).toBe(5)
  })

  const context = () => maintenanceContext(v.db, { logger: log.logger })
})

describe('failing parents', () => {
  it('fails parents that a child has marked, when the process that marked them did not', async () => {
    const ids = await v.enqueue(...Array.from({ length: 130 }, () => ({ type: 'p', children: [{ type: 'a' }] })))
    await sql(`update coppice.job p set failing_child_id = c.id from coppice.job c where c.parent_id = p.id`)
    await run(failingParents(1000))
    const { rows } = await sql(
      'select state, error_code, cancel_code, count(*)::int from coppice.job group by 1, 2, 3 order by 1',
    )
    expect(rows).toEqual([
      { state: 'cancelled', error_code: null, cancel_code: 'parent_failed', count: ids.length },
      { state: 'failed', error_code: 'CHILD_FAILED', cancel_code: null, count: ids.length },
    ])
    expect(changes).toBe(ids.length)
  })

  it('leaves those that run to the end of their attempt', async () => {
    const [id] = await v.enqueue({ type: 'a' })
    const [held] = await v.claim()
    await sql('update coppice.job set failing_child_id = $1', [randomUUID()])
    await run(failingParents(1000))
    expect((await v.row(id!)).state).toBe('running')
    await sql('update coppice.job set failing_child_id = null')
    await v.complete(held!)
  })
})

describe('dead workers', () => {
  it('are deleted once no running job names them', async () => {
    const dead = async (id: string) => sql('update coppice.worker set dead_at = now() where id = $1', [id])
    const [idle, busy, live] = [await addWorker(v.test), await addWorker(v.test), await addWorker(v.test)]
    await v.enqueue({ type: 'a' })
    await v.claim()
    await sql('update coppice.job set worker_id = $1', [busy])
    await dead(idle)
    await dead(busy)
    await run(deadWorkers(1000))
    const left = async () => (await sql('select id from coppice.worker')).rows.map((row) => row.id)
    expect((await left()).sort()).toEqual([busy, live, v.workerId].sort())
    await run(leaseRecovery(1000))
    expect(changes).toBe(1)
    await run(deadWorkers(1000))
    expect((await left()).sort()).toEqual([live, v.workerId].sort())
  })
})

const RETENTION = { completed: DAY, failed: null, cancelled: null, events: DAY }

it('their intervals can be set, each by its name', async () => {
  const of = (intervals: object) => createEngine({ connectionString: 'postgres://nowhere', maintenance: { intervals } })
  const made = maintenanceHandlers({ heartbeatMs: 100, retention: RETENTION, intervals: { 'parent-wakes': 250 } })
  const byName = Object.fromEntries(made.map((handler) => [handler.name, handler.intervalMs]))
  expect(byName).toMatchObject({ 'parent-wakes': 250, 'orphan-sweep': 10_000, 'lease-recovery': 100 })
  for (const name of Object.keys(byName)) expect(HANDLER_NAMES).toContain(name)
  await of({ 'parent-wakes': '250ms', 'orphan-sweep': 60_000 }).stop()
  for (const wrong of [{ 'parent-wake': '1s' }, { 'parent-wakes': 'soon' }, { 'parent-wakes': 0 }]) {
    expect(() => of(wrong)).toThrow(ValidationError)
  }
})

it('all of them run in one loop', async () => {
  const loop = createMaintenanceLoop({
    db: v.db,
    handlers: maintenanceHandlers({
      heartbeatMs: 100,
      retention: RETENTION,
    }),
    logger: log.logger,
    metrics: createMetrics(),
  })
  loop.start()
  await until(() => {
    for (const { name } of loop.handlers) loop.nudge(name)
    return loop.handlers.every((handler) => handler.runs > 1)
  })
  await loop.stop()
  expect(loop.handlers.map(({ name, failures }) => [name, failures])).toEqual([
    ['lease-recovery', 0],
    ['attempt-timeouts', 0],
    ['wait-timeouts', 0],
    ['parent-wakes', 0],
    ['failing-parents', 0],
    ['dead-workers', 0],
    ['orphan-sweep', 0],
    ['job-retention', 0],
    ['event-retention', 0],
  ])
  expect(log.messages()).toEqual([])
})
