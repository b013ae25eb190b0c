import type { Database } from '../../db/database.ts'
import { statement, unindexed } from '../../db/statement.ts'
import { LeaseLostError } from '../errors.ts'

/**
 * Saves what a handler wants kept over retries and phases; `checkpoint` is JSON text.
 *
 * @throws {LeaseLostError} when the attempt with this claim token no longer holds the job.
 */
export async function saveCheckpoint(
  db: Database,
  job: { id: string; claimToken: string },
  checkpoint: string,
): Promise<void> {
  const rows = await db.query(save, [job.id, job.claimToken, checkpoint])
  if (rows.length === 0) throw new LeaseLostError(job.id)
}

// Fenced by the claim token. Locks the one row that it writes. No event, and so no new version: others do not see it.
const save = statement<{ id: string }>(
  'checkpoint.save',
  (t) => `
  update ${t.job} set checkpoint = $3::jsonb, updated_at = now()
  where id = $1 and claim_token = $2 and ${unindexed(`state = 'running'`)}
  returning id`,
)
