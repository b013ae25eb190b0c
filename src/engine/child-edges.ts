import { statement } from '../db/statement.ts'
import type { JobTable } from '../db/tables.ts'
import type { Tx } from '../db/transaction.ts'
import { added } from './counter-sql.ts'
import { applyMoves, wakeSettled } from './settle/apply-moves.ts'
import { isTerminal, type JobState } from './states.ts'

/** What became of other jobs when some ended. */
export interface EndReport {
  /** Parents that were woken. */
  woken: string[]
  /** Parents that are to fail in their turn. */
  failing: string[]
}

export const NOTHING: EndReport = { woken: [], failing: [] }

/** The rows of parents by id, as this transaction holds them locked; those that are gone are left out. */
export type Parents = ReadonlyMap<string, JobTable>

/** Children that were cancelled: each parent has so many open children less. `rows` are the children as they were before. */
export async function settleEdges(
  tx: Tx,
  rows: readonly JobTable[],
  parents: Parents,
  actor: string,
): Promise<EndReport> {
  return uncountOpen(tx, membersByParent(rows.filter(isActive), parents), actor)
}

/** Children that left their parents' child sets for good: deleted or archived. `rows` are as they were before. */
export async function leaveChildSets(
  tx: Tx,
  rows: readonly JobTable[],
  parents: Parents,
  actor: string,
): Promise<EndReport> {
  const left = membersByParent(rows, parents)
  if (left.size === 0) return NOTHING
  await tx.query(uncountChildren, [[...left.keys()], [...left.values()]])
  const ended = membersByParent(rows.filter(isActive), parents)
  return uncountOpen(tx, new Map([...left.keys()].map((id) => [id, ended.get(id) ?? 0])), actor)
}

async function uncountOpen(tx: Tx, ended: ReadonlyMap<string, number>, actor: string): Promise<EndReport> {
  const changes = [...ended].map(([id, count]) => ({ id, move: null, ended: count, failingChildId: null }))
  return wakeSettled(tx, await applyMoves(tx, changes, actor), actor)
}

/** How many members of its child set each parent has among these. */
function membersByParent(rows: readonly JobTable[], parents: Parents): Map<string, number> {
  const counts = new Map<string, number>()
  for (const { parent_id: id, archived_at } of rows) {
    if (id !== null && archived_at === null && parents.has(id)) counts.set(id, (counts.get(id) ?? 0) + 1)
  }
  return counts
}

function isActive(row: JobTable): boolean {
  return !isTerminal(row.state as JobState)
}

const uncountChildren = statement(
  'child-edges.uncount',
  (t) => `
  update ${t.job} j set child_count = ${added('j.child_count', '-c.n')} from unnest($1::uuid[], $2::int[]) c(id, n)
  where j.id = c.id and j.id = any($1::uuid[])`,
)
