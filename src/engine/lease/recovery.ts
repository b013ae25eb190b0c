import type { Logger } from 'pino'
import type { Database } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import { formatId } from '../ids.ts'
import type { AttemptError } from '../job.ts'
import { ABANDONED_COLUMNS, type AbandonedJob, type GivenBack, giveBack } from './give-back.ts'

/** Jobs given back in one page. */
const PAGE = 500

interface LostJob extends AbandonedJob {
  worker_id: string | null
}

/**
 * Gives back every RUNNING job whose worker is dead or has no row, whoever declared it dead and whenever: nothing is
 * remembered from one call to the next. Moves nothing by itself: each job is settled.
 */
export async function recoverLostJobs(
  db: Database,
  { actor, logger, signal }: { actor: string; logger: Logger; signal?: AbortSignal },
): Promise<GivenBack> {
  const total: GivenBack = { retried: 0, failed: 0 }
  for (let after: string | null = null; !signal?.aborted; ) {
    const rows: LostJob[] = await db.query(lostJobs, [after, PAGE])
    if (rows.length === 0) break
    const { retried, failed } = await giveBack(db, rows, leaseLost, { actor, logger })
    total.retried += retried
    total.failed += failed
    after = rows.at(-1)!.id
  }
  return total
}

function leaseLost(row: LostJob): AttemptError {
  const worker = row.worker_id === null ? 'Its worker' : `Worker ${formatId('WK', row.worker_id)}`
  return { message: `${worker} is gone: the lease on this job was lost.`, code: 'LEASE_LOST' }
}

// Reads the running jobs only, of which there are as many as slots in the cluster.
const lostJobs = statement<LostJob>(
  'lease.lost-jobs',
  (t) => `
  select ${ABANDONED_COLUMNS}, j.worker_id from ${t.job} j
  where j.state = 'running' and j.claim_token is not null and ($1::uuid is null or j.id > $1)
    and not exists (select from ${t.worker} w where w.id = j.worker_id and w.dead_at is null)
  order by j.id limit $2`,
)
