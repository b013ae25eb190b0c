import pg from 'pg'
import { type Database, databaseOf } from '../../src/db/database.ts'

/** How one statement was executed. */
export interface ExecutedPlan {
  /** Its name, such as `claim.any-queue`. */
  readonly name: string
  /** Rows that scans of tables gave, and rows that they read and dropped. */
  readonly read: number
  /** The plan, for a message. */
  readonly text: string
}

interface PlanNode {
  'Node Type': string
  'Relation Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  'Rows Removed by Index Recheck'?: number
  Plans?: PlanNode[]
}

/**
 * Runs a verb for real, then its statements once more under EXPLAIN ANALYZE in a transaction that is rolled back.
 *
 * @param restore makes the data again what it was before the verb.
 */
export async function plansOf(
  db: Database,
  verb: (db: Database) => Promise<unknown>,
  restore: () => Promise<unknown>,
): Promise<ExecutedPlan[]> {
  const calls: { text: string; parameters: unknown[] }[] = []
  const { connectionString } = db.pool.options
  const pool = new pg.Pool({ ...(connectionString !== undefined && { connectionString }), max: 1 })
  try {
    pool.on('connect', (client) => {
      const query = client.query.bind(client) as (...given: unknown[]) => unknown
      client.query = ((text: unknown, parameters: unknown, ...rest: unknown[]) => {
        if (typeof text === 'string' && Array.isArray(parameters)) calls.push({ text, parameters })
        return query(text, parameters, ...rest)
      }) as typeof client.query
    })
    await verb(databaseOf(pool, db.schema))
    await restore()
    const client = await db.pool.connect()
    try {
      await client.query('begin')
      const plans: ExecutedPlan[] = []
      for (const { text, parameters } of calls) {
        const { rows } = await client.query(`explain (analyze, format json) ${text}`, parameters)
        const root = rows[0]['QUERY PLAN'][0].Plan as PlanNode
        plans.push({
          name: /coppice:(\S+)/.exec(text)?.[1] ?? text,
          read: rowsRead(root),
          text: outline(root),
        })
      }
      return plans
    } finally {
      await client.query('rollback')
      client.release()
    }
  } finally {
    await pool.end()
  }
}

function readBy(node: PlanNode): number {
  const each =
    node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0)
  return /Scan$/.test(node['Node Type']) && node['Node Type'] !== 'CTE Scan' ? each * node['Actual Loops'] : 0
}

function rowsRead(node: PlanNode): number {
  return (node.Plans ?? []).reduce((sum, below) => sum + rowsRead(below), readBy(node))
}

function outline(node: PlanNode, depth = 0): string {
  const { 'Node Type': type, 'Relation Name': relation = '', 'Actual Loops': loops, 'Actual Rows': rows } = node
  const line = `${'  '.repeat(depth)}${type} ${relation} rows ${rows} × ${loops}, read ${readBy(node)}`
  return [line, ...(node.Plans ?? []).map((below) => outline(below, depth + 1))].join('\n')
}
