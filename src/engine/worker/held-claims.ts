import type { Database } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import type { AbortCode } from '../context/context.ts'
import type { SettleJob } from '../settle/settle-batch.ts'

/** A claim that an attempt believes to hold. */
export interface Claim {
  jobId: string
  claimToken: string
}

/** A claim that is not held any more, and why. */
export interface LostClaim extends Claim {
  code: Extract<AbortCode, 'CANCELLED' | 'LEASE_LOST'>
}

/** Which of the claims are not held any more: the job was cancelled or deleted, or taken away. */
export async function findLostClaims(db: Database, claims: readonly Claim[]): Promise<LostClaim[]> {
  if (claims.length === 0) return []
  const rows = await db.query(readClaims, [claims.map((claim) => claim.jobId)])
  const byId = new Map(rows.map((row) => [row.id, row]))
  const lost: LostClaim[] = []
  for (const claim of claims) {
    const row = byId.get(claim.jobId)
    if (row?.state === 'running' && row.claim_token === claim.claimToken) continue
    lost.push({ ...claim, code: row === undefined || row.state === 'cancelled' ? 'CANCELLED' : 'LEASE_LOST' })
  }
  return lost
}

/** Of these claim tokens, those that still hold a job, and what settling needs to know of it. */
export async function findHeldClaims(
  db: Database,
  workerId: string,
  claimTokens: readonly string[],
): Promise<SettleJob[]> {
  return claimTokens.length === 0 ? [] : db.query(readHeld, [workerId, claimTokens])
}

const readClaims = statement<{ id: string; state: string; claim_token: string | null }>(
  'worker.read-claims',
  (t) => `select id, state, claim_token from ${t.job} where id = any($1::uuid[])`,
)

const readHeld = statement<SettleJob>(
  'worker.read-held',
  (t) => `
  select id, tree_id as "treeId", parent_id as "parentId", depth, wave, claim_token as "claimToken",
    child_count as "childCount"
  from ${t.job} where worker_id = $1 and state = 'running' and claim_token = any($2::uuid[])`,
)
