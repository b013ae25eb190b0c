import { sql } from 'kysely'
import type { Database } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import type { JobTable } from '../../db/tables.ts'
import type { Tx } from '../../db/transaction.ts'
import { type JobFilter, jobConditions } from '../reads/job-filter.ts'
import { jobPath } from '../reads/job-paths.ts'
import { isTerminal, type JobState } from '../states.ts'
import type { BulkVerb } from './verbs.ts'

/** A job that a bulk verb is for. */
export type Target = Pick<JobTable, 'id' | 'tree_id' | 'depth' | 'state' | 'orphan_policy'> & { has_children: boolean }

/** The first `limit` jobs, oldest first, that match and that the verb may be done to. */
export async function findTargets(db: Database, verb: BulkVerb, filter: JobFilter, limit: number): Promise<Target[]> {
  const path = jobPath(db.tables.job, withStates(verb, filter), 'created_at')
  const order = (alias: string) => sql.raw(path.place === 'id' ? `${alias}.id` : `${alias}.created_at, ${alias}.id`)
  const first = path.first({ conditions: [sql.raw(verb.allowed(db.tables))], cut: { order: order('j'), limit } })
  const { rows } = await sql<Target>`
    /* coppice:bulk.find */ select j.id, j.tree_id, j.depth, j.state, j.orphan_policy,
      (select c.id from ${sql.raw(db.tables.job)} c where c.parent_id = j.id limit 1) is not null as has_children
    from (select found.* from ${first} found order by ${order('found')} limit ${limit}) target
    cross join lateral (
      select * from ${sql.raw(db.tables.job)} one where one.id = target.id limit 1) j
    order by ${order('target')}
  `.execute(db.kysely)
  return rows
}

/** How many there are, over the limit too. It reads all of them. */
export async function countTargets(db: Database, verb: BulkVerb, filter: JobFilter): Promise<number> {
  const path = jobPath(db.tables.job, withStates(verb, filter), 'created_at')
  const all = path.first({ conditions: [sql.raw(verb.allowed(db.tables))], cut: null })
  const { rows } = await sql<{ count: number }>`
    /* coppice:bulk.count */ select count(*)::int as count from ${all} found
  `.execute(db.kysely)
  return rows[0]!.count
}

/** Those of these jobs that match still. Their rows are locked, or their tree: what this finds stays so. */
export async function stillTargets(
  tx: Tx,
  verb: BulkVerb,
  filter: JobFilter,
  ids: readonly string[],
): Promise<Map<string, Pick<JobTable, 'id' | 'state'>>> {
  const conditions = [...jobConditions({ ...withStates(verb, filter), ids }), sql.raw(verb.allowed(tx.db.tables))]
  if (filter.ids) conditions.push(sql`j.id = any(${filter.ids}::uuid[])`)
  const { sql: text, parameters } = sql`
    /* coppice:bulk.match */ select j.id, j.state from ${sql.raw(tx.db.tables.job)} j
    where ${sql.join(conditions, sql` and `)}`.compile(tx.db.kysely)
  const { rows } = await tx.client.query(text, parameters as unknown[])
  return new Map(rows.map((row) => [row.id, row]))
}

/** Which of these jobs are cancelled now. */
export async function cancelledOf(tx: Tx, ids: readonly string[]): Promise<string[]> {
  return (await tx.query(findCancelled, [ids])).map((row) => row.id)
}

/** Locks those of these jobs that nobody holds. */
export async function lockFree(tx: Tx, ids: readonly string[]): Promise<JobTable[]> {
  return tx.query(lockUnlocked, [ids])
}

/** Those of these jobs that have children. */
export async function parentsAmong(tx: Tx, ids: readonly string[]): Promise<Set<string>> {
  return new Set((await tx.query(findParents, [ids])).map((row) => row.id))
}

/**
 * How many active descendants would be cancelled with some jobs that are not among them. It reads all that is below,
 * level by level.
 */
export async function countBelow(tx: Tx, verb: BulkVerb, targets: readonly Target[]): Promise<number> {
  const own = new Set(targets.map((target) => target.id))
  const seen = new Set<string>()
  let count = 0
  for (
    let level = targets.filter((target) => verb.cancelsBelow(target)).map((target) => target.id);
    level.length > 0;
  ) {
    const below = (await tx.query(readLevel, [level])).filter((row) => !seen.has(row.id))
    for (const { id, state } of below) {
      seen.add(id)
      if (!own.has(id) && !isTerminal(state as JobState)) count++
    }
    level = below.map((row) => row.id)
  }
  return count
}

function withStates(verb: BulkVerb, filter: JobFilter): JobFilter {
  const states = filter.states ?? verb.states
  return { ...filter, states: states.filter((state) => verb.states.includes(state)) }
}

const lockUnlocked = statement<JobTable>(
  'bulk.lock',
  (t) => `select * from ${t.job} where id = any($1::uuid[]) order by depth desc, id for no key update skip locked`,
)

const findCancelled = statement<{ id: string }>(
  'bulk.cancelled',
  (t) => `select id from ${t.job} where id = any($1::uuid[]) and state = 'cancelled'`,
)

const findParents = statement<{ id: string }>(
  'bulk.parents',
  (t) => `
  select parent.id from unnest($1::uuid[]) parent(id)
  cross join lateral (select id from ${t.job} where parent_id = parent.id limit 1) child`,
)

const readLevel = statement<{ id: string; state: string }>(
  'bulk.level',
  (t) => `select id, state from ${t.job} where parent_id = any($1::uuid[])`,
)
