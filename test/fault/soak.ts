import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { createEngine } from '../../src/index.ts'
import { generator } from '../support/interleavings.ts'
import { findViolations, type Violation } from '../support/invariants.ts'
import { until } from '../support/until.ts'
import { proveWakes, readWakeLog } from '../support/wake-log.ts'
import { type Expectation, expectationOf, randomPlan } from './soak-plans.ts'
import { startWorkers, type Workers } from './soak-workers.ts'

/*
 * Trees of every shape run in worker processes that are killed with SIGKILL at random moments, on a server that crashes now
 * and then, while jobs are paused and resumed. In the end the event log must prove that every wait ended in one wake, and
 * none early; and every tree must have come to what its plan says.
 */

export interface SoakOptions {
  connectionString: string
  /** Worker processes at once. */
  workers: number
  /** Goes on until each of these is reached that is given: trees enqueued, workers killed, ms passed. */
  until: { trees?: number; kills?: number; ms?: number }
  /** Ends the server in the way of a crash and brings it back. Without it the server stays up. */
  crash?: () => Promise<void>
  /** Pause between two crashes, in ms. */
  crashEvery?: readonly [number, number]
  /** Aborted, it goes on no longer: what there is runs to its end, and is judged. */
  signal?: AbortSignal
  log?: (line: string) => void
}

export interface SoakReport {
  seconds: number
  kills: number
  /** Crashes of the server. */
  restarts: number
  trees: number
  jobs: number
  pauses: number
  /** Wakes by what noticed that they were due. */
  wakes: Record<string, number>
  /** Attempts given back for their dead workers. */
  recovered: number
  violations: Violation[]
}

/** Jobs ready or running above which no more trees are enqueued. Those that back off, for a killed worker, do not count. */
const ENOUGH = 200
const BATCH = 10
const OUTAGE_MS = 60_000

export async function runSoak(options: SoakOptions): Promise<SoakReport> {
  const { connectionString, until: goals, crash, crashEvery = [10_000, 20_000], log = () => {} } = options
  const started = performance.now()
  const pool = new pg.Pool({ connectionString, max: 4, connectionTimeoutMillis: 5000 })
  pool.on('error', () => {})
  pool.on('connect', (client) => client.on('error', () => {}))
  // It only enqueues and steers, and it lives through every crash.
  const engine = createEngine({ connectionString })
  const workers: Workers = await startWorkers(connectionString, options.workers)
  const expected = new Map<string, Expectation>()
  const paused = new Set<string>()
  const did = { kills: 0, restarts: 0, pauses: 0 }
  let going = true

  /** Through outages: what is asked may have been done already, and is asked again. */
  const persist = <T>(what: string, act: () => Promise<T>): Promise<T> =>
    until(async () => ({ value: await act() }), { timeout: OUTAGE_MS, what }).then(({ value }) => value)
  const query = (text: string, parameters: unknown[] = []) =>
    persist('the database to answer', () => pool.query(text, parameters))

  const reached = () =>
    options.signal?.aborted ||
    (performance.now() - started >= (goals.ms ?? 0) &&
      expected.size >= (goals.trees ?? 0) &&
      did.kills >= (goals.kills ?? 0))

  async function enqueue(): Promise<void> {
    const random = generator(Date.now())
    for (let batch = 0; going; ) {
      const { rows } = await query(
        `select (select count(*) from coppice.job where state = 'queued' and archived_at is null and run_at <= now())::int
           + (select count(*) from coppice.job where state = 'running')::int as busy`,
      )
      for (let busy = rows[0].busy; busy < ENOUGH && going; busy += 3 * BATCH) {
        if (goals.trees !== undefined && goals.ms === undefined && expected.size >= goals.trees) break
        const plans = Array.from({ length: BATCH }, () => randomPlan(random))
        // With keys: a batch whose commit was not answered is recognised.
        const jobs = plans.map((payload, index) => ({
          type: 'soak-tree',
          key: `${batch}-${index}`,
          payload,
          maxRetries: 1000,
          ...(payload.keeps && { orphanPolicy: 'keep' as const }),
        }))
        batch++
        const handles = await persist('trees to be enqueued', () => engine.enqueueMany(jobs))
        for (const [index, { id }] of handles.entries()) {
          expected.set(id.replace('JB_', ''), expectationOf(plans[index]!))
        }
      }
      await sleep(50)
    }
  }

  async function kill(): Promise<void> {
    while (going) {
      await sleep(200 + Math.random() * 600)
      if (workers.killOne()) did.kills++
    }
  }

  async function pauseSome(): Promise<void> {
    while (going) {
      await sleep(20)
      const { rows } = await query(
        `select id from coppice.job where state in ('queued', 'running', 'waiting') order by id desc limit 200`,
      )
      const id = rows[Math.floor(Math.random() * rows.length)]?.id
      if (!id) continue
      paused.add(id)
      await steer('a job to be paused', () => engine.pauseJob(id))
      did.pauses++
      await sleep(Math.random() * 150)
      await steer('a job to be resumed', () => engine.resumeJob(id))
    }
  }

  /** A verb may be refused, by a job that has ended or has moved on. */
  const steer = (what: string, act: () => Promise<unknown>) =>
    persist(what, () =>
      act().catch((error) => {
        if (error.code !== 'INVALID_STATE') throw error
      }),
    )

  async function crashSometimes(): Promise<void> {
    if (!crash) return
    const [least, most] = crashEvery
    for (let next = performance.now() + least / 2; going; await sleep(100)) {
      if (performance.now() < next) continue
      await crash()
      did.restarts++
      next = performance.now() + least + Math.random() * (most - least)
    }
  }

  async function untilReached(): Promise<void> {
    let told = 0
    while (!reached()) {
      await sleep(50)
      workers.check()
      if (performance.now() - told < 10_000) continue
      told = performance.now()
      log(`${did.kills} kills, ${did.restarts} restarts of the server, ${expected.size} trees`)
    }
    going = false
  }

  try {
    const chores = [enqueue(), kill(), pauseSome(), pauseSome(), crashSometimes()]
    await Promise.all([untilReached(), ...chores]).finally(() => {
      going = false
    })
    await Promise.allSettled(chores)
    const left = `select id from coppice.job where state not in ('completed', 'failed', 'cancelled')`
    await until(
      async () => {
        workers.check()
        const { rows } = await query(`select id from coppice.job where state = 'paused'`)
        for (const { id } of rows) await steer('a job to be resumed', () => engine.resumeJob(id))
        return (await query(`${left} limit 1`)).rows.length === 0
      },
      { timeout: 120_000, interval: 200, what: 'every tree to end' },
    ).catch((error: Error) => log(error.message))
    const found = await judge(pool, expected)
    const seconds = Math.round((performance.now() - started) / 100) / 10
    return { seconds, ...did, trees: expected.size, ...found }
  } finally {
    await workers.stop()
    await engine.stop()
    await pool.end()
  }
}

/** The log first, and by itself; then the rows. */
async function judge(pool: pg.Pool, expected: Map<string, Expectation>) {
  const { faults } = await proveWakes(readWakeLog(pool), { atRest: true })
  const violations: Violation[] = [
    ...(faults.length === 0 ? [] : [{ invariant: 'the log proves one wake for each wait', rows: faults.slice(0, 10) }]),
    ...(await findViolations(pool, { atRest: true })),
    ...(await wrongTrees(pool, expected)),
  ]
  const counts = await pool.query(`select
    (select count(*) from coppice.job)::int as jobs,
    (select count(*) from coppice.job_event where detail -> 'error' ->> 'code' = 'LEASE_LOST')::int as recovered`)
  const sources = await pool.query<{ source: string; n: number }>(`
    select detail ->> 'source' as source, count(*)::int as n from coppice.job_event
    where detail ? 'operationId' group by 1 order by 1`)
  return {
    jobs: counts.rows[0].jobs as number,
    recovered: counts.rows[0].recovered as number,
    wakes: Object.fromEntries(sources.rows.map((row) => [row.source, row.n])),
    violations,
  }
}

/** Trees that are missing, or did not come to what their plans say. */
async function wrongTrees(pool: pg.Pool, expected: Map<string, Expectation>): Promise<Violation[]> {
  const { rows } = await pool.query(`
    select t.tree_id, count(*)::int as jobs, sum(t.wave)::int as wakes, r.state, (r.result ->> 'jobs')::int as counted
    from coppice.job t join coppice.job r on r.id = t.tree_id group by t.tree_id, r.state, r.result`)
  const found = new Map(rows.map((row) => [row.tree_id, row]))
  const wrong = [...expected].filter(([id, { state, exactly }]) => {
    const tree = found.get(id)
    if (tree?.state !== state) return true
    return exactly !== null && (tree.jobs !== exactly.jobs || tree.wakes !== exactly.wakes)
  })
  const strange = rows.filter((row) => !expected.has(row.tree_id))
  const what = (invariant: string, those: unknown[]) =>
    those.length === 0 ? [] : [{ invariant, rows: those.slice(0, 10) }]
  return [
    ...what(
      'every tree comes to what its plan says',
      wrong.map(([id, expectation]) => ({ expectation, found: found.get(id) ?? null })),
    ),
    ...what('no tree was enqueued twice', strange),
  ]
}
