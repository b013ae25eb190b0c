import { formatJobId } from '../ids.ts'
import type { MaintenanceContext } from '../maintenance/handler.ts'
import { type Candidates, findWithheldParents } from './candidates.ts'

/** Tells of the assignees that wakes wait for: each tick counts them, and the log names them whenever they change. */
export class RestingLog {
  #told = '[]'

  async tell({ db, logger, metrics }: MaintenanceContext, { count, some }: Candidates['resting']): Promise<void> {
    metrics.wakeAssigneeUnresolved.inc(count)
    const telling = JSON.stringify(count === 0 ? [] : [count, some])
    if (telling === this.#told) return
    this.#told = telling
    if (count === 0) {
      logger.info('no wake is withheld any more')
      return
    }
    const ids = some.map((assignee) => assignee.id)
    const parents = new Map((await findWithheldParents(db, ids)).map((row) => [row.assigneeId, row.parentIds]))
    const assignees = some.map(({ id, status }) => ({
      id,
      status: status?.toUpperCase() ?? null,
      parents: (parents.get(id) ?? []).map(formatJobId),
    }))
    logger.warn({ count, assignees }, 'wakes are withheld: their assignees are not active, or unknown')
  }
}
