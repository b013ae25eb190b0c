import type { Database } from '../../db/database.ts'
import { statement, type TableNames } from '../../db/statement.ts'
import { transaction } from '../../db/transaction.ts'
import { EngineError } from '../errors.ts'
import { formatId } from '../ids.ts'
import { claimMixed } from './claim-limited.ts'
import type { ClaimLimits } from './claim-limits.ts'
import { candidatesOfTypes, claimLocked, lockCandidate } from './claim-sql.ts'
import type { ClaimedJob } from './claimed-job.ts'

/** What a worker asks for. */
export interface ClaimRequest {
  workerId: string
  /** Only these, so that a type unknown here blocks nobody. */
  types: readonly string[]
  /** Null: all. */
  queues: readonly string[] | null
  limit: number
  /** Concurrency limits of some of the types. */
  limits?: ClaimLimits
}

/** The worker was declared dead, or its row is gone: it must drop what it holds and take a new incarnation. */
export class WorkerDeadError extends EngineError {
  readonly code = 'WORKER_DEAD'

  constructor(workerId: string) {
    super(`Worker WK_${workerId} was declared dead: its claims are refused.`)
  }
}

/**
 * Claims up to `limit` jobs: QUEUED becomes RUNNING under a fresh claim token, in order of queue, priority, runAt, id.
 * Takes no tree lock, and skips what others hold.
 *
 * Of types with a concurrency limit it takes the locks of keys first, and claims in a second statement: see
 * {@link lockKeys} and {@link claimMixed}. The rows in state RUNNING are what counts, so a slot is free again in the very
 * transaction that takes a job out of that state, whichever it is.
 *
 * @throws {WorkerDeadError} when the worker may not claim any more.
 */
export async function claimJobs(db: Database, request: ClaimRequest): Promise<ClaimedJob[]> {
  const { workerId, queues, limit, limits } = request
  const actor = formatId('WK', workerId)
  const types = limits ? request.types.filter((type) => !limits.has(type)) : request.types
  const { rows, page } = await transaction(
    db,
    async (tx) => {
      const page = await limits?.lockKeys(tx)
      const rows =
        page && page.held.length > 0
          ? await claimMixed(tx, { workerId, actor, types, keys: page.held, queues, limit })
          : queues
            ? await tx.query(claimFromQueues, [workerId, actor, types, limit, queues])
            : await tx.query(claimFromAnyQueue, [workerId, actor, types, limit])
      if (rows.length === 0 && (await tx.query(isAlive, [workerId])).length === 0) throw new WorkerDeadError(workerId)
      return { rows, page }
    },
    { planOnce: true },
  )
  if (page) limits?.advance(page, rows.length === limit)
  return rows
}

const isAlive = statement('claim.worker-alive', (t) => `select id from ${t.worker} where id = $1 and dead_at is null`)

// Candidates are locked one by one through the primary key, in their order: joined as sets, the planner reads the whole
// queue instead.
function claimText(t: TableNames, queues: string | null): string {
  return `
  with recursive ${candidatesOfTypes(t, queues)},
  locked as materialized (
    select l.place from candidate c cross join lateral (${lockCandidate(t)}) l
    limit $4
  ),
  ${claimLocked(t)}`
}

const claimFromAnyQueue = statement<ClaimedJob>('claim.any-queue', (t) => claimText(t, null), { prepared: true })
const claimFromQueues = statement<ClaimedJob>('claim.queues', (t) => claimText(t, '$5'), { prepared: true })
