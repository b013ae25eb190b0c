import { statement } from '../../../db/statement.ts'
import type { MaintenanceHandler } from '../handler.ts'

/**
 * Deletes the rows of dead workers once no RUNNING job names them. (A claim that commits just then is of a worker without
 * a row, which counts as dead: it is given back.)
 */
export function deadWorkers(intervalMs: number): MaintenanceHandler {
  return {
    name: 'dead-workers',
    intervalMs,
    async run({ db }) {
      await db.query(deleteDeadWorkers)
    },
  }
}

const deleteDeadWorkers = statement(
  'maintenance.delete-dead-workers',
  (t) => `
  delete from ${t.worker} w where w.dead_at is not null
    and not exists (select from ${t.job} j where j.worker_id = w.id and j.state = 'running')`,
)
