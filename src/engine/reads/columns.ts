import type { JobTable } from '../../db/tables.ts'

/** Columns whose values may be large: they are read only where they are asked for, and null elsewhere. */
export const HEAVY_COLUMNS = ['payload', 'result', 'metadata', 'checkpoint', 'error_stack'] as const
export type HeavyColumn = (typeof HEAVY_COLUMNS)[number]

/** Every other column of a job. */
const LIGHT_COLUMNS = [
  'id',
  'tree_id',
  'parent_id',
  'parent_wave',
  'depth',
  'type',
  'queue',
  'priority',
  'run_at',
  'key',
  'state',
  'phase',
  'wave',
  'spawn_wave',
  'version',
  'concurrency_key',
  'attempt',
  'claim_token',
  'worker_id',
  'claimed_at',
  'retry_count',
  'max_retries',
  'completion_epoch',
  'child_count',
  'open_children',
  'progress',
  'assignee_id',
  'ephemeral',
  'archived_at',
  'on_child_failure',
  'failure_tolerance',
  'orphan_policy',
  'timeouts',
  'error',
  'error_code',
  'cancel_reason',
  'cancel_code',
  'skipped_ingest',
  'paused_from',
  'pause_requested',
  'failing_child_id',
  'children_reopened',
  'waiting_since',
  'created_at',
  'updated_at',
  'started_at',
  'finished_at',
] as const satisfies readonly Exclude<keyof JobTable, HeavyColumn>[]

// Does not compile when a column of the table is in neither list.
const complete: Exclude<keyof JobTable, HeavyColumn | (typeof LIGHT_COLUMNS)[number]> extends never ? true : false =
  true
void complete

/** Which heavy columns a read brings along. */
export type Heavy = ReadonlySet<HeavyColumn>

/** None of them. */
export const NO_HEAVY: Heavy = new Set()

/** All of them. */
export const ALL_HEAVY: Heavy = new Set(HEAVY_COLUMNS)

/** A name for a set of heavy columns, the same for equal sets. */
export function heavyKey(heavy: Heavy): string {
  return HEAVY_COLUMNS.filter((column) => heavy.has(column)).join(',')
}

/** The select list that makes a row of `job`, from the table under `alias`. */
export function jobColumns(alias: string, heavy: Heavy): string {
  return [
    ...LIGHT_COLUMNS.map((column) => `${alias}.${column}`),
    ...HEAVY_COLUMNS.map((column) => (heavy.has(column) ? `${alias}.${column}` : `null as ${column}`)),
  ].join(', ')
}
