import { createHash } from 'node:crypto'
import type { Counter, Gauge } from 'prom-client'
import { type Database, openDatabase } from '../../src/db/database.ts'
import type { ClaimedJob } from '../../src/engine/claim/claimed-job.ts'
import { parentWakes } from '../../src/engine/maintenance/handlers/parent-wakes.ts'
import { createMetrics, type EngineMetrics } from '../../src/engine/metrics.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { countAndLogWakes, switchEdgeWakesOff, watchWakes } from '../../src/engine/wake-watch.ts'
import { captureLog } from './captured-log.ts'
import { maintenanceContext } from './maintenance.ts'
import type { Verbs } from './verbs.ts'

/** A reconciler of one process, ticked by hand. */
export interface Reconciler {
  tick(): Promise<void>
  metrics: EngineMetrics
  /** The values of its figures: `candidates`, `woken` (by the reconciler) and so on. */
  figures(): Promise<Record<string, number>>
  log: ReturnType<typeof captureLog>
}

/** Makes a reconciler on a database. */
export function createReconciler(db: Database, { limit = 100 } = {}): Reconciler {
  const metrics = createMetrics()
  const log = captureLog()
  watchWakes(db, countAndLogWakes(metrics, log.logger))
  const handler = parentWakes(1000, limit)
  const context = maintenanceContext(db, { metrics, logger: log.logger })
  const value = async (figure: Counter | Gauge) => (await figure.get()).values[0]?.value ?? 0
  return {
    metrics,
    log,
    tick: () => handler.run(context),
    figures: async () => ({
      candidates: await value(metrics.wakeCandidates),
      woken: (await metrics.wakeEmitted.get()).values.find((one) => one.labels.source === 'reconciler')?.value ?? 0,
      deduplicated: await value(metrics.wakeDeduplicated),
      superseded: await value(metrics.wakeSuperseded),
      unresolved: await value(metrics.wakeAssigneeUnresolved),
      repaired: await value(metrics.driftRepaired),
      stuck: await value(metrics.stuck),
    }),
  }
}

/** The same database, but nothing is woken at the edge by what goes through this. */
export function withoutEdge(v: Verbs): Database & { complete(jobs: readonly ClaimedJob[]): Promise<unknown> } {
  const db = openDatabase({ connectionString: v.test.connectionString, schema: v.test.schema })
  switchEdgeWakesOff(db)
  return Object.assign(db, {
    complete: (jobs: readonly ClaimedJob[]) =>
      settle(
        db,
        jobs.map((job) => ({ job, outcome: { kind: 'completed', result: null } })),
        { actor: 'test' },
      ),
  })
}

/** The database, with something done right after a statement of that name has answered, once. */
export function interrupted(db: Database, name: string, act: () => Promise<unknown>): Database {
  let done = false
  const query: Database['query'] = async (statement, parameters) => {
    const rows = await db.query(statement, parameters)
    if (statement.name === name && !done) {
      done = true
      await act()
    }
    return rows
  }
  return { ...db, query }
}

/** The operation id of a wake by what it is defined as, not by what the engine computes. */
export function operationIdOf(
  parentId: string,
  wave: number,
  members: readonly { id: string; state: string; epoch: number }[],
): string {
  const sha = (text: string) => createHash('sha256').update(text).digest('hex')
  const lines = members
    .toSorted((a, b) => (a.id < b.id ? -1 : 1))
    .map(({ id, state, epoch }) => `\n${id} ${state} ${epoch}`)
  return `job_children_completed:${parentId}:${sha(`${parentId}\0${sha(`${wave}${lines.join('')}`)}`)}`
}
