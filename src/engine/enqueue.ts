import type { Database, Queryable } from '../db/database.ts'
import { type Statement, statement, type TableNames } from '../db/statement.ts'
import { transaction } from '../db/transaction.ts'
import { insertEvents } from './event-sql.ts'
import type { Enqueued } from './job.ts'
import { firstOfEachKey, type PreparedJob, USUAL } from './prepare.ts'
import { type UserTransaction, userTransaction } from './user-transaction.ts'
import { type WakeTx, wakeAtEdge } from './wake.ts'

/** Where new jobs are put: as roots (null), or as children of an existing job. */
export interface Place {
  id: string
  treeId: string
  depth: number
  /** The child set that the new children belong to: the parent's `spawnWave`. */
  spawnWave: number
}

/** A job of a flattened tree: it, and where it goes. */
interface Placed {
  job: PreparedJob
  treeId: string
  parentId: string | null
  parentWave: number | null
  depth: number
}

/** What an insert came to. */
export interface Inserted {
  /** In the order given. */
  results: Enqueued[]
  /** How many of the jobs given were new: all of them are active. */
  created: number
  /** Ids of jobs that had the keys already. */
  existing: string[]
}

/**
 * Enqueues jobs with their trees in one transaction: all or none. A job whose key is taken is answered with the job that
 * has it, and nothing of its tree is written. `jobs` come from `prepareJobs`.
 */
export async function enqueueJobs(
  db: Database,
  jobs: readonly PreparedJob[],
  { actor }: { actor: string },
): Promise<Enqueued[]> {
  if (jobs.length === 0) return []
  return transaction(db, async (tx) => (await insertJobs(tx, jobs, null, actor)).results)
}

/**
 * As {@link enqueueJobs}, in a transaction that the user has open: the jobs are there when that commits. Nothing of it is
 * set, and nothing is run again: a conflict (40P01, 40001) is the user's to retry, with the whole transaction.
 *
 * @throws {ValidationError} when it is not open.
 */
export async function enqueueJobsIn(
  db: Database,
  given: UserTransaction,
  jobs: readonly PreparedJob[],
  { actor }: { actor: string },
): Promise<Enqueued[]> {
  const tx = await userTransaction(db, given)
  return (await insertJobs(tx, jobs, null, actor)).results
}

/**
 * Writes jobs and their trees under `place`. Locks: none but the new rows (the caller locks the parent); keyed rows are
 * inserted in order of their keys, so that two that enqueue the same keys cannot deadlock.
 */
export async function insertJobs(
  tx: WakeTx,
  jobs: readonly PreparedJob[],
  place: Place | null,
  actor: string,
): Promise<Inserted> {
  const { first, sameAs } = firstOfEachKey(jobs)
  const { created, existing } = await insertTop(tx, first, place, actor)
  const below = created.flatMap((top) => descendants(top))
  if (below.length > 0) await tx.query(insertPlain, parameters(below, actor))
  const childless = [...created, ...below].filter(({ job }) => job.children?.length === 0)
  await wakeAtEdge(
    tx,
    childless.map(({ job }) => ({ id: job.id, assigneeId: job.assigneeId })),
    actor,
  )
  const results = jobs.map((job): Enqueued => {
    const other = existing.get(sameAs.get(job) ?? job)
    if (other !== undefined) return { id: other, deduplicated: true }
    return { id: (sameAs.get(job) ?? job).id, deduplicated: sameAs.has(job) }
  })
  return { results, created: created.length, existing: [...existing.values()] }
}

/** Children of one parent. */
export interface Family {
  place: Place
  /** Without keys and without children of their own. */
  children: readonly PreparedJob[]
}

/** Writes the plain children of many parents at once. Locks: none but the new rows (the caller locks the parents). */
export async function insertChildren(tx: Queryable, families: readonly Family[], actor: string): Promise<void> {
  const placed = families.flatMap(({ place, children }) => children.map((child) => placedUnder(child, place)))
  if (placed.length > 0) await tx.query(insertPlain, parameters(placed, actor))
}

/** Inserts the top level, where keys may meet jobs that are there already. */
async function insertTop(tx: Queryable, jobs: readonly PreparedJob[], place: Place | null, actor: string) {
  const placed = (job: PreparedJob) => placedUnder(job, place)
  // Never as arguments of a call (`push(...)`): of a list of 200,000 they do not fit on the stack.
  let created: Placed[] = []
  const existing = new Map<PreparedJob, string>()
  const plain = jobs.filter((job) => job.key === null).map(placed)
  if (plain.length > 0) {
    await tx.query(insertPlain, parameters(plain, actor))
    created = plain
  }
  const statements = place ? keyedChildren : keyedRoots
  let todo = jobs.filter((job) => job.key !== null).sort(byKey)
  // A rival's row may be gone again before it is read: then the key is free, and the insert is tried once more.
  while (todo.length > 0) {
    const rows = await tx.query(statements.insert, parameters(todo.map(placed), actor))
    const inserted = new Set(rows.map((row) => row.id))
    created = created.concat(todo.filter((job) => inserted.has(job.id)).map(placed))
    const rest = todo.filter((job) => !inserted.has(job.id))
    if (rest.length === 0) break
    // A second statement: only its snapshot is sure to see the row that the insert met.
    const found = await tx.query(statements.find, [
      place?.id ?? null,
      rest.map((job) => job.type),
      rest.map((job) => job.key),
    ])
    const ids = new Map(found.map((row) => [JSON.stringify([row.type, row.key]), row.id]))
    for (const job of rest) {
      const id = ids.get(JSON.stringify([job.type, job.key]))
      if (id !== undefined) existing.set(job, id)
    }
    todo = rest.filter((job) => !existing.has(job))
  }
  return { created, existing }
}

function placedUnder(job: PreparedJob, place: Place | null): Placed {
  return {
    job,
    treeId: place?.treeId ?? job.id,
    parentId: place?.id ?? null,
    parentWave: place?.spawnWave ?? null,
    depth: place ? place.depth + 1 : 0,
  }
}

function descendants(top: Placed): Placed[] {
  const all: Placed[] = []
  const walk = (parent: Placed) => {
    for (const job of parent.job.children ?? []) {
      const child = { job, treeId: top.treeId, parentId: parent.job.id, parentWave: 1, depth: parent.depth + 1 }
      all.push(child)
      walk(child)
    }
  }
  walk(top)
  return all
}

function byKey(a: PreparedJob, b: PreparedJob): number {
  const [left, right] = [`${a.type}\0${a.key}`, `${b.type}\0${b.key}`]
  return left < right ? -1 : left > right ? 1 : 0
}

function parameters(placed: readonly Placed[], actor: string): unknown[] {
  /** One array a column; where all jobs have the usual value an empty one, which `unnest` fills up with nulls. */
  const column = <T>(usual: T, read: (placed: Placed) => T) =>
    placed.every((one) => read(one) === usual) ? [] : placed.map(read)
  return [
    actor,
    placed.map((p) => p.job.id),
    placed.map((p) => p.treeId),
    column(null, (p) => p.parentId),
    column(null, (p) => p.parentWave),
    column(0, (p) => p.depth),
    placed.map((p) => p.job.type),
    column(USUAL.queue, (p) => p.job.queue),
    column(USUAL.priority, (p) => p.job.priority),
    column(null, (p) => p.job.runAt),
    column(null, (p) => p.job.key),
    column(USUAL.json, (p) => p.job.payload),
    column(USUAL.json, (p) => p.job.metadata),
    column(USUAL.maxRetries, (p) => p.job.maxRetries),
    column(null, (p) => p.job.assigneeId),
    column(USUAL.ephemeral, (p) => p.job.ephemeral),
    column(USUAL.onChildFailure, (p) => p.job.onChildFailure),
    column(null, (p) => p.job.failureTolerance),
    column(USUAL.orphanPolicy, (p) => p.job.orphanPolicy),
    column(USUAL.json, (p) => JSON.stringify(p.job.timeouts)),
    column(null, (p) => p.job.concurrencyKey),
    // Null: not given. A job with children, even none, waits for them and skips its ingest.
    column(null, (p) => p.job.children?.length ?? null),
  ]
}

function insertText(t: TableNames, onConflict: string): string {
  return `
  with input as (
    select * from unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::int[], $6::int[], $7::text[], $8::text[], $9::int[],
      $10::timestamptz[], $11::text[], $12::text[], $13::text[], $14::int[], $15::text[], $16::boolean[], $17::text[],
      $18::text[], $19::text[], $20::text[], $21::text[], $22::int[])
    as i(id, tree_id, parent_id, parent_wave, depth, type, queue, priority, run_at, key, payload, metadata, max_retries,
      assignee_id, ephemeral, on_child_failure, failure_tolerance, orphan_policy, timeouts, concurrency_key, children)
  ),
  created as (
    insert into ${t.job}
      (id, tree_id, parent_id, parent_wave, depth, type, queue, priority, run_at, key, payload, metadata, max_retries,
       assignee_id, ephemeral, on_child_failure, failure_tolerance, orphan_policy, timeouts, concurrency_key,
       state, skipped_ingest, child_count, open_children, spawn_wave, waiting_since)
    select id, tree_id, parent_id, parent_wave, coalesce(depth, 0), type, coalesce(queue, '${USUAL.queue}'),
       coalesce(priority, ${USUAL.priority}), coalesce(run_at, now()), key, coalesce(payload, '${USUAL.json}')::jsonb,
       coalesce(metadata, '${USUAL.json}')::jsonb, coalesce(max_retries, ${USUAL.maxRetries}), assignee_id,
       coalesce(ephemeral, ${USUAL.ephemeral}), coalesce(on_child_failure, '${USUAL.onChildFailure}'), failure_tolerance,
       coalesce(orphan_policy, '${USUAL.orphanPolicy}'), coalesce(timeouts, '${USUAL.json}')::jsonb, concurrency_key,
       case when children is null then 'queued' else 'waiting' end, children is not null, coalesce(children, 0),
       coalesce(children, 0), case when children is null then 0 else 1 end,
       case when children is not null then now() end
    from input
    ${onConflict}
    returning id, tree_id, parent_id, type, state, phase, wave, attempt, version
  ),
  event as (
    ${insertEvents(t)}
    select 'created', id, tree_id, parent_id, type, null, state, phase, wave, attempt, version, $1, null, null
    from created
  )
  select id from created`
}

const insertPlain = statement<{ id: string }>('enqueue.insert', (t) => insertText(t, ''))

interface Keyed {
  insert: Statement<{ id: string }>
  find: Statement<{ id: string; type: string; key: string }>
}

const keyedRoots: Keyed = {
  insert: statement('enqueue.insert-keyed-roots', (t) =>
    insertText(t, 'on conflict (type, key) where parent_id is null and key is not null do nothing'),
  ),
  find: statement(
    'enqueue.find-keyed-roots',
    (t) => `
    select j.id, j.type, j.key from unnest($2::text[], $3::text[]) wanted(type, key)
    join ${t.job} j on j.type = wanted.type and j.key = wanted.key
    where j.parent_id is null and $1::uuid is null`,
  ),
}

const keyedChildren: Keyed = {
  insert: statement('enqueue.insert-keyed-children', (t) =>
    insertText(t, 'on conflict (parent_id, type, key) where parent_id is not null and key is not null do nothing'),
  ),
  find: statement(
    'enqueue.find-keyed-children',
    (t) => `
    select j.id, j.type, j.key from unnest($2::text[], $3::text[]) wanted(type, key)
    join ${t.job} j on j.type = wanted.type and j.key = wanted.key
    where j.parent_id = $1::uuid`,
  ),
}
