import { validate } from 'uuid'
import type { Database, Queryable } from '../../db/database.ts'
import { type Statement, statement } from '../../db/statement.ts'
import type { JobTable } from '../../db/tables.ts'
import { transaction } from '../../db/transaction.ts'
import { type Job, jobFromRow } from '../job.ts'
import type { JobState } from '../states.ts'
import { type Heavy, heavyKey, jobColumns } from './columns.ts'
import { decodeCursor, encodeCursor, isInt } from './cursor.ts'
import { groupBy } from './group-by.ts'
import { jobsById } from './jobs-by-id.ts'
import { type Page, type PageRequest, pageOf } from './page.ts'
import { type StateCounts, stateCounts } from './state-counts.ts'

/** Page sizes of a tree's flat list. */
export const TREE_PAGE_LIMITS = { max: 10_000, default: 1000 }

/** A page of a tree's jobs by depth, then id: a parent before its children. Forwards only. */
export interface TreeNodesRequest {
  treeId: string
  page: PageRequest
  /** Null: all. */
  states: readonly JobState[] | null
  /** Distance from the root; null: any. */
  maxDepth: number | null
}

/** What is wanted of some trees; all of it is read in one snapshot. */
export interface TreesRequest {
  roots: readonly string[]
  counts: readonly string[]
  nodes: readonly TreeNodesRequest[]
  heavy: Heavy
}

/** What was read, in one snapshot. */
export interface Trees {
  /** `pg_current_snapshot()` of the read: a feed cursor made of it goes on without a gap. */
  snapshot: string
  /** By tree; absent where the root was deleted. */
  roots: Map<string, Job>
  /** By tree, without archived jobs. */
  counts: Map<string, StateCounts>
  /** In the order asked for. */
  nodes: Page<Job>[]
}

/** The tree that a job belongs to or belonged to, by its row, its descendants or its events; null without a trace. */
export async function treeIdOf(q: Queryable, jobId: string): Promise<string | null> {
  const [row] = await q.query(findTreeId, [jobId])
  return row?.tree_id ?? null
}

const findTreeId = statement<{ tree_id: string | null }>(
  'reads.tree-id',
  (t) => `
  select coalesce(
    (select tree_id from ${t.job} where id = $1),
    (select tree_id from ${t.job} where tree_id = $1 and parent_id is not null limit 1),
    (select tree_id from ${t.jobEvent} where job_id = $1 limit 1)) as tree_id`,
)

/** Reads parts of trees in one REPEATABLE READ transaction: one statement for each kind of part and each list. */
export async function readTrees(db: Database, request: TreesRequest): Promise<Trees> {
  return transaction(
    db,
    async (tx) => {
      const snapshot = await currentSnapshot(tx)
      const roots = request.roots.length > 0 ? await jobsById(tx, request.roots, request.heavy) : []
      const counts = request.counts.length > 0 ? await countTrees(tx, request.counts) : new Map()
      const nodes: Page<Job>[] = []
      for (const list of request.nodes) nodes.push(await treeNodes(tx, list, request.heavy))
      return { snapshot, roots: new Map(roots.map((root) => [root.id, root])), counts, nodes }
    },
    { repeatableRead: true },
  )
}

/** `pg_current_snapshot()` of a transaction, or of this moment. */
export async function currentSnapshot(q: Queryable): Promise<string> {
  const [row] = await q.query(readSnapshot)
  return row!.snapshot
}

const readSnapshot = statement<{ snapshot: string }>(
  'reads.snapshot',
  () => `select pg_current_snapshot()::text as snapshot`,
)

/** The jobs of some trees by state, without archived ones. */
export async function countTrees(q: Queryable, treeIds: readonly string[]): Promise<Map<string, StateCounts>> {
  const rows = groupBy(await q.query(countStates, [treeIds]), (row) => row.tree_id)
  return new Map(treeIds.map((id) => [id, stateCounts(rows.get(id) ?? [])]))
}

// The index of trees leaves the roots to the primary key: two branches, each served by its own index.
const countStates = statement<{ tree_id: string; state: string; count: number }>(
  'reads.tree-counts',
  (t) => `
  select tree_id, state, count(*)::int as count from (
    select tree_id, state from ${t.job} where id = any($1::uuid[]) and parent_id is null and archived_at is null
    union all
    select tree_id, state from ${t.job} where tree_id = any($1::uuid[]) and parent_id is not null
      and archived_at is null) jobs
  group by tree_id, state`,
)

/**
 * Depth and id of the job that a cursor of a tree's flat list was made at.
 *
 * @throws {InvalidCursorError}
 */
export function treePosition(cursor: string): [depth: number, id: string] {
  return decodeCursor('tree', cursor, [isInt, (value) => validate(value)]) as [number, string]
}

async function treeNodes(q: Queryable, request: TreeNodesRequest, heavy: Heavy): Promise<Page<Job>> {
  const { treeId, page, states, maxDepth } = request
  const [depth, id] = page.after === null ? [-1, treeId] : treePosition(page.after)
  const rows = await q.query(nodesStatement(heavy), [treeId, depth, id, states, maxDepth, page.size + 1])
  return pageOf(rows, page, (row) => ({ cursor: encodeCursor('tree', [row.depth, row.id]), node: jobFromRow(row) }))
}

const statements = new Map<string, Statement<JobTable>>()

function nodesStatement(heavy: Heavy): Statement<JobTable> {
  const key = heavyKey(heavy)
  let found = statements.get(key)
  if (!found) {
    const condition = `j.archived_at is null and (j.depth, j.id) > ($2::int, $3::uuid)
      and ($4::text[] is null or j.state = any($4)) and ($5::int is null or j.depth <= $5)`
    found = statement(
      'reads.tree-nodes',
      (t) => `
      select * from (
        select ${jobColumns('j', heavy)} from ${t.job} j where j.id = $1 and j.parent_id is null and ${condition}
        union all
        (select ${jobColumns('j', heavy)} from ${t.job} j where j.tree_id = $1 and j.parent_id is not null and ${condition}
         order by j.depth, j.id limit $6)) nodes
      order by depth, id limit $6`,
    )
    statements.set(key, found)
  }
  return found
}
