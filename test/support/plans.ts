import pg from 'pg'
import { prepareValue } from 'pg/lib/utils.js'
import { type Database, databaseOf } from '../../src/db/database.ts'
import { lookWhetherDirect } from '../../src/db/direct.ts'

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
  const calls: Call[] = []
  const { connectionString } = db.pool.options
  const pool = new pg.Pool({
    ...(connectionString !== undefined && { connectionString }),
    max: 1,
    verify: (client, done) => {
      lookWhetherDirect(client).then(() => done(), done)
    },
  })
  try {
    pool.on('connect', (client) => {
      const query = client.query.bind(client) as (...given: unknown[]) => unknown
      let inTransaction = false
      client.query = ((given: unknown, ...rest: unknown[]) => {
        if (typeof given === 'string' && Array.isArray(rest[0])) {
          calls.push({ text: given, values: rest[0], inTransaction })
        } else if (typeof given === 'object' && given !== null) calls.push({ ...(given as Call), inTransaction })
        else if (typeof given === 'string') inTransaction = given.startsWith('begin')
        return query(given, ...rest)
      }) as typeof client.query
    })
    await verb(databaseOf(pool, db.schema))
    await restore()
    const client = await db.pool.connect()
    try {
      await client.query('begin; set local jit = off')
      const plans: ExecutedPlan[] = []
      for (const [index, call] of calls.entries()) {
        const plan = await explain(client, call, `call_${index}`)
        plans.push({
          name: /coppice:(\S+)/.exec(call.text)?.[1] ?? call.text,
          read: rowsRead(plan),
          text: outline(plan),
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

interface Call {
  text: string
  values: unknown[]
  /** Of one that is kept prepared. */
  name?: string
  /** Transactions scan no table. */
  inTransaction: boolean
}

/** Executes a statement; one that is kept prepared with the plan for parameters of any size. */
async function explain(
  client: pg.ClientBase,
  { text, values, name, inTransaction }: Call,
  as: string,
): Promise<PlanNode> {
  await client.query(`set local enable_seqscan = ${inTransaction ? 'off' : 'on'}`)
  if (name === undefined) {
    const { rows } = await client.query(`explain (analyze, format json) ${text}`, values)
    return rows[0]['QUERY PLAN'][0].Plan
  }
  await client.query(`set local plan_cache_mode = force_generic_plan; prepare ${as} as ${text}`)
  const literals = values.map((value) => {
    const prepared = prepareValue(value)
    return prepared === null ? 'null' : pg.escapeLiteral(String(prepared))
  })
  const given = literals.length > 0 ? `(${literals.join(', ')})` : ''
  const { rows } = await client.query(`explain (analyze, format json) execute ${as}${given}`)
  await client.query(`set local plan_cache_mode = auto; deallocate ${as}`)
  return rows[0]['QUERY PLAN'][0].Plan
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
