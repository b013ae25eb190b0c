import { statement } from '../db/statement.ts'
import type { JobTable } from '../db/tables.ts'
import type { Tx } from '../db/transaction.ts'

/*
 * The one lock order of every transaction:
 *
 *   1. the tree lock: shared for verbs on one edge (settle, spawn, resume, archive, wake), exclusive for verbs on a
 *      subtree (delete, cancel, end with open children, fail-fast), one tree a transaction. Batches try it and leave a
 *      tree that they do not get for their next round.
 *   2. job rows by (depth descending, id), FOR NO KEY UPDATE;
 *   3. assignee rows.
 *
 * Claims take no tree lock and SKIP LOCKED. Those of types with a concurrency limit try the locks of keys before
 * (limited-keys.ts): nobody ever waits for one, so they have no place in the order. A statement that waited for a lock trusts only the locked rows' own
 * columns: anything else is read by a later statement.
 */

/** Trees share this many advisory locks, so that the server's lock table stays small whatever a batch holds. */
const TREE_BUCKETS = 128

/** Which of the tree locks a tree takes: its last byte, random in a UUIDv7. */
export function treeBucket(treeId: string): number {
  return Number.parseInt(treeId.slice(-2), 16) % TREE_BUCKETS
}

/** Where a job is in its tree: what the locks below are chosen by. Neither ever changes. */
export const findPlace = statement<{ tree_id: string; parent_id: string | null }>(
  'lock.find-place',
  (t) => `select tree_id, parent_id from ${t.job} where id = $1`,
)

const lockShared = statement('lock.tree-shared', () => 'select pg_advisory_xact_lock_shared($1, $2)')
const lockExclusive = statement('lock.tree-exclusive', () => 'select pg_advisory_xact_lock($1, $2)')

/** Waits for the shared lock on a tree: for a verb on one of its edges. */
export async function lockTreeShared(tx: Tx, treeId: string): Promise<void> {
  await tx.query(lockShared, [tx.db.lockSpace, treeBucket(treeId)])
}

/** Waits for the exclusive lock on a tree: for a verb on a subtree. */
export async function lockTreeExclusive(tx: Tx, treeId: string): Promise<void> {
  await tx.query(lockExclusive, [tx.db.lockSpace, treeBucket(treeId)])
}

const tryShared = statement<{ bucket: number }>(
  'lock.trees-try-shared',
  () => `
  select bucket from (select distinct bucket from unnest($2::int[]) bucket order by bucket) wanted
  where pg_try_advisory_xact_lock_shared($1, bucket)`,
)

/** Tries the shared locks of many trees; returns the buckets that it got. */
export async function tryLockTreesShared(tx: Tx, treeIds: readonly string[]): Promise<Set<number>> {
  const rows = await tx.query(tryShared, [tx.db.lockSpace, treeIds.map(treeBucket)])
  return new Set(rows.map((row) => row.bucket))
}

const lockRows = statement<JobTable>(
  'lock.jobs',
  (t) => `select * from ${t.job} where id = any($1::uuid[]) order by depth desc, id for no key update`,
)

/** Locks job rows in the one order and returns them as they are under the lock, by id. Missing ones are left out. */
export async function lockJobs(tx: Tx, ids: readonly (string | null)[]): Promise<Map<string, JobTable>> {
  const rows = await tx.query(lockRows, [[...new Set(ids.filter((id) => id !== null))]])
  return new Map(rows.map((row) => [row.id, row]))
}
