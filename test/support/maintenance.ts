import type { Database } from '../../src/db/database.ts'
import type { Json } from '../../src/engine/job.ts'
import type { MaintenanceContext } from '../../src/engine/maintenance/handler.ts'
import { createMetrics } from '../../src/engine/metrics.ts'
import { captureLog } from './captured-log.ts'

/** What a handler of the maintenance loop gets, for a test that runs it by hand; it remembers from run to run. */
export function maintenanceContext(db: Database, given: Partial<MaintenanceContext> = {}): MaintenanceContext {
  let state: Json = null
  return {
    db,
    logger: captureLog().logger,
    metrics: createMetrics(),
    signal: new AbortController().signal,
    changed: () => {},
    get state() {
      return state
    },
    async remember(next) {
      state = next
    },
    ...given,
  }
}
