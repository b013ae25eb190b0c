import type { Logger } from 'pino'
import type { Database } from '../db/database.ts'
import { formatJobId } from './ids.ts'
import type { WakeSource } from './job.ts'
import type { EngineMetrics } from './metrics.ts'

/** A wake that was committed. */
export interface CommittedWake {
  parentId: string
  treeId: string
  wave: number
  source: WakeSource
  operationId: string
  /** More than 0: it was forced. */
  openChildren: number
  /** How long the statement that woke it took, with others in it if there were any. */
  ms: number
}

/** Told of the wakes of a committed transaction. Must not throw. */
export type WakeWatch = (wakes: readonly CommittedWake[]) => void

const watches = new WeakMap<Database, WakeWatch>()
const edgesOff = new WeakSet<Database>()

/** Has every wake that is delivered through this database told after its commit, whoever delivers it. */
export function watchWakes(db: Database, watch: WakeWatch): void {
  watches.set(db, watch)
}

/** Who is told of the wakes delivered through a database. */
export function wakeWatchOf(db: Database): WakeWatch | undefined {
  return watches.get(db)
}

/** Counts wakes by source, and logs each: those of the edge at debug, for there is one for every parent, others at info. */
export function countAndLogWakes(metrics: EngineMetrics, logger: Logger): WakeWatch {
  return (wakes) => {
    for (const { parentId, treeId, wave, source, operationId, openChildren, ms } of wakes) {
      metrics.wakeEmitted.inc({ source })
      const level = source === 'edge' ? 'debug' : 'info'
      if (!logger.isLevelEnabled(level)) continue
      const fields = { parent: formatJobId(parentId), tree: formatJobId(treeId), wave, source, operationId }
      logger[level]({ ...fields, openChildren, ms: Math.round(ms * 100) / 100 }, 'parent woken')
    }
  }
}

/**
 * For tests only: from now on, nothing that goes through this database wakes at the edge, as if each such wake had been
 * lost. The reconciler goes on.
 */
export function switchEdgeWakesOff(db: Database): void {
  edgesOff.add(db)
}

/** Whether wakes at the edge have been switched off by a test. */
export function edgeWakesAreOff(db: Database): boolean {
  return edgesOff.has(db)
}
