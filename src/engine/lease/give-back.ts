import type { Logger } from 'pino'
import type { Database } from '../../db/database.ts'
import { exhaustedLine, retryLine, retryOrFail } from '../failure/retry.ts'
import type { AttemptError } from '../job.ts'
import { logRefusedEnds, settle } from '../settle/settle.ts'
import type { SettleItem } from '../settle/settle-batch.ts'
import type { Phase } from '../states.ts'

/** A RUNNING job whose attempt is over without having said so: the columns that giving it back needs. */
export interface AbandonedJob {
  id: string
  tree_id: string
  parent_id: string | null
  depth: number
  wave: number
  type: string
  phase: Phase
  claim_token: string
  child_count: number
  retry_count: number
  max_retries: number
}

/** The columns of {@link AbandonedJob}, of `job` as `j`. */
export const ABANDONED_COLUMNS = `j.id, j.tree_id, j.parent_id, j.depth, j.wave, j.type, j.phase, j.claim_token,
    j.child_count, j.retry_count, j.max_retries`

/** How many jobs went which way. */
export interface GivenBack {
  retried: number
  failed: number
}

/**
 * Ends attempts in their workers' place: each is settled under its own claim token as a retry with backoff or, retries
 * spent, as failed. So parents, failure policies and wakes act exactly as for a thrown error, and a worker that lives
 * after all settles first or is refused. A lost lease backs off like any error: it spreads the jobs of a dead worker, and
 * slows down those that kill theirs.
 *
 * Jobs of which PostgreSQL refuses any end are left for the next time. Throws only when the database cannot be reached.
 */
export async function giveBack<Row extends AbandonedJob>(
  db: Database,
  rows: readonly Row[],
  errorOf: (row: Row) => AttemptError,
  { actor, logger }: { actor: string; logger: Logger },
): Promise<GivenBack> {
  const ends = new Map(rows.map((row) => [row.id, { row, ...retryOrFail(retryStateOf(row), errorOf(row)) }]))
  const items: SettleItem[] = [...ends.values()].map(({ row, outcome }) => ({ job: settleJobOf(row), outcome }))
  const report = await settle(db, items, { actor })
  logRefusedEnds(logger, report)
  const given: GivenBack = { retried: 0, failed: 0 }
  for (const id of report.settled) {
    const { row, operation, outcome } = ends.get(id)!
    if (outcome.kind === 'retry') {
      given.retried += 1
      logger.warn(retryLine(row.retry_count + 1, row.max_retries, operation, id))
    } else {
      given.failed += 1
      logger.error(exhaustedLine(row.max_retries, operation, id))
    }
  }
  return given
}

function retryStateOf(row: AbandonedJob) {
  return { type: row.type, phase: row.phase, retryCount: row.retry_count, maxRetries: row.max_retries }
}

function settleJobOf(row: AbandonedJob) {
  return {
    id: row.id,
    treeId: row.tree_id,
    parentId: row.parent_id,
    depth: row.depth,
    wave: row.wave,
    claimToken: row.claim_token,
    childCount: row.child_count,
  }
}
