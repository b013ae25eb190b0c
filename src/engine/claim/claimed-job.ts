import type { Job } from '../job.ts'

/** A job held by one attempt: as much of it as running it takes. */
export interface ClaimedJob
  extends Pick<
    Job,
    | 'id'
    | 'treeId'
    | 'parentId'
    | 'depth'
    | 'type'
    | 'queue'
    | 'key'
    | 'payload'
    | 'result'
    | 'metadata'
    | 'phase'
    | 'wave'
    | 'spawnWave'
    | 'checkpoint'
    | 'attempt'
    | 'retryCount'
    | 'maxRetries'
    | 'childCount'
    | 'timeouts'
    | 'skippedIngest'
  > {
  claimToken: string
}

/**
 * Its columns, under their public names: rows need no translation. Not all of the table's: of 500 jobs, writing and
 * reading 60 columns each takes longer than claiming them.
 */
export const CLAIMED_COLUMNS = `id, tree_id as "treeId", parent_id as "parentId", depth, type, queue, key, payload, result,
    metadata, phase, wave, spawn_wave as "spawnWave", checkpoint, attempt, retry_count as "retryCount",
    max_retries as "maxRetries", child_count as "childCount", timeouts,
    skipped_ingest as "skippedIngest", claim_token as "claimToken"`
