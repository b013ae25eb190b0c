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
 * remembered from one call to the next. Moves nothing by itself: each job is settled. So are those that plain SQL set
 * running: without a claim token nobody holds them, since no claim leaves one out and nothing can be settled without.
 */
export async function recoverLostJobs(
  db: Database,
  { actor, logger, signal }: { actor: string; logger: Logger; signal?: AbortSignal },
): Promise<GivenBack> {
  const total: GivenBack = { retried: 0, failed: 0 }
  await db.query(adoptUnheld)
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
  const worker = row.worker_id === null ? null : `Worker ${formatId('WK', row.worker_id)}`
  const message = worker === null ? 'No worker holds this job.' : `${worker} is gone: the lease on this job was lost.`
  return { message, code: 'LEASE_LOST' }
}

// Under a token of their own, and of no worker, so that they are found as lost, by another process if need be.
const adoptUnheld = statement(
  'lease.adopt-unheld',
  (t) => `
  with unheld as (
    select id from ${t.job} where state = 'running' and claim_token is null
    order by depth desc, id for no key update skip locked
  )
  update ${t.job} set claim_token = gen_random_uuid(), worker_id = null where id = any(array(select id from unheld))`,
)

// Reads the running jobs only, of which there are as many as slots in the cluster.
const lostJobs = statement<LostJob>(
  'lease.lost-jobs',
  (t) => `
  select ${ABANDONED_COLUMNS}, j.worker_id from ${t.job} j
  where j.state = 'running' and j.claim_token is not null and ($1::uuid is null or j.id > $1)
    and not exists (select from ${t.worker} w where w.id = j.worker_id and w.dead_at is null)
  order by j.id limit $2`,
)
