import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { createEngine } from '../../src/index.ts'
import { findViolations, type Violation } from '../support/invariants.ts'
import { until } from '../support/until.ts'

/*
 * Kills worker processes with SIGKILL at random moments while they run trees, and then looks for trees with half or
 * double children, parents that sleep, and parents that were woken more than once.
 */

export interface KillSoakOptions {
  connectionString: string
  kills: number
  /** Worker processes at once. */
  workers: number
  log?: (line: string) => void
}

export interface KillSoakReport {
  kills: number
  trees: number
  jobs: number
  wakes: number
  recovered: number
  seconds: number
  violations: Violation[]
}

const SHAPES = [[3], [2, 3], [8], [2, 2, 2], [0], [3, 0], [20]]

const WORKER = new URL('../support/programs/soak-worker.ts', import.meta.url).pathname

/** Jobs of a tree, from its shape. */
function size([width, ...below]: readonly number[]): number {
  return width === undefined ? 1 : 1 + width * size(below)
}

export async function runKillSoak(options: KillSoakOptions): Promise<KillSoakReport> {
  const { connectionString, log = () => {} } = options
  const started = performance.now()
  const pool = new pg.Pool({ connectionString, max: 3 })
  pool.on('error', () => {})
  const engine = createEngine({ connectionString })
  const workers = new Set<ChildProcess>()
  const ready = new Set<ChildProcess>()
  let died = false
  const startWorker = () => {
    const child = spawn(process.execPath, ['--import', 'tsx', WORKER, connectionString], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    workers.add(child)
    child.on('exit', (code) => {
      // One that ends by itself is a fault: nothing here asks it to.
      if (code !== null) died = true
      workers.delete(child)
      ready.delete(child)
    })
    return once(child.stdout, 'data').then(() => ready.add(child))
  }
  const expected = new Map<string, number>()
  let kills = 0
  try {
    await Promise.all(Array.from({ length: options.workers }, startWorker))
    let enqueuing = true
    const enqueue = async () => {
      while (enqueuing) {
        const { rows } = await pool.query(
          `select count(*)::int as open from coppice.job where state in ('queued', 'running')`,
        )
        for (let n = rows[0].open; n < 60; n += 5) {
          const fan = SHAPES[Math.floor(Math.random() * SHAPES.length)]!
          const { id } = await engine.enqueue({ type: 'soak-tree', payload: { fan }, maxRetries: 1000 })
          expected.set(id.replace('JB_', ''), size(fan))
        }
        await sleep(20)
      }
    }
    const enqueuer = enqueue()
    while (kills < options.kills) {
      if (died) throw new Error('A worker ended by itself')
      await sleep(50 + Math.random() * 500)
      // Most hit a worker that runs jobs, some one that is starting.
      const among = Math.random() < 0.85 ? ready : workers
      const victim = [...among][Math.floor(Math.random() * among.size)]
      if (!victim) continue
      workers.delete(victim)
      ready.delete(victim)
      victim.kill('SIGKILL')
      kills++
      // Not waited for: the next kill may hit it while it starts.
      startWorker().catch(() => {})
      if (kills % 20 === 0) log(`${kills} kills, ${expected.size} trees`)
    }
    enqueuing = false
    await enqueuer
    await until(
      async () => {
        const { rows } = await pool.query(
          `select count(*)::int as open from coppice.job where state not in ('completed', 'failed', 'cancelled')`,
        )
        return rows[0].open === 0
      },
      { timeout: 120_000, interval: 200, what: 'every tree to end' },
    )
    const violations = [
      ...(await findViolations(pool, { atRest: true })),
      ...(await wrongTrees(pool, expected)),
      ...(await wokenTwice(pool)),
    ]
    const counts = await pool.query(`select
      (select count(*) from coppice.job)::int as jobs,
      (select count(*) from coppice.job_event where detail ? 'operationId')::int as wakes,
      (select count(*) from coppice.job_event where detail -> 'error' ->> 'code' = 'LEASE_LOST')::int as recovered`)
    const seconds = Math.round((performance.now() - started) / 100) / 10
    return { kills, trees: expected.size, ...counts.rows[0], seconds, violations }
  } finally {
    for (const worker of workers) worker.kill('SIGKILL')
    await engine.stop()
    await pool.end()
  }
}

/** Trees that did not complete with just the jobs of their shape, by their rows and by what they counted themselves. */
async function wrongTrees(pool: pg.Pool, expected: Map<string, number>): Promise<Violation[]> {
  const { rows } = await pool.query(`
    select t.tree_id, count(*)::int as jobs, r.state, (r.result ->> 'jobs')::int as counted
    from coppice.job t join coppice.job r on r.id = t.tree_id group by t.tree_id, r.state, r.result`)
  const found = new Map(rows.map((row) => [row.tree_id, row]))
  const wrong = [...expected].filter(([id, jobs]) => {
    const row = found.get(id)
    return row?.state !== 'completed' || row.jobs !== jobs || row.counted !== jobs
  })
  if (wrong.length === 0) return []
  return [
    {
      invariant: 'every tree completes with just its jobs',
      rows: wrong.map(([id, jobs]) => ({ jobs, ...found.get(id) })),
    },
  ]
}

/** Every parent of these trees fans out once: it is woken once. */
async function wokenTwice(pool: pg.Pool): Promise<Violation[]> {
  const { rows } = await pool.query(`
    select job_id, count(*)::int as wakes from coppice.job_event where detail ? 'operationId'
    group by job_id having count(*) <> 1`)
  return rows.length === 0 ? [] : [{ invariant: 'each parent is woken once', rows }]
}
