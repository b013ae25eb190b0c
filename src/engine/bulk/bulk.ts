import type { Database } from '../../db/database.ts'
import type { JobTable } from '../../db/tables.ts'
import { type Tx, transaction } from '../../db/transaction.ts'
import type { VerbOptions } from '../cascade.ts'
import type { EndReport } from '../child-edges.ts'
import { ValidationError } from '../errors.ts'
import { type Job, jobFromRow } from '../job.ts'
import { lockJobs, lockTreeExclusive, treeBucket, tryLockTreesShared } from '../locks.ts'
import { ALL_HEAVY } from '../reads/columns.ts'
import { groupBy } from '../reads/group-by.ts'
import type { JobFilter } from '../reads/job-filter.ts'
import { jobsById } from '../reads/jobs-by-id.ts'
import { isTerminal, type JobState } from '../states.ts'
import {
  cancelledOf,
  countBelow,
  countTargets,
  findTargets,
  lockFree,
  parentsAmong,
  stillTargets,
  type Target,
} from './targets.ts'
import type { BulkVerb } from './verbs.ts'

/*
 * A verb done to many jobs, in small transactions, so that the rest goes on beside it: trees in which only jobs without
 * children match, as far as their locks are to be had, many at a time; the others one by one under the tree's exclusive
 * lock, from the top down, some hundred jobs a transaction. Each job is proven under the locks to match still.
 */

/** How a bulk verb is done. */
export interface BulkOptions extends VerbOptions {
  /** Only say what would happen. */
  dryRun?: boolean
  /** At most this many jobs, oldest first: 1 to 10,000; 1000 by default. */
  limit?: number
}

/** What a bulk verb did, or would do. */
export interface BulkReport {
  dryRun: boolean
  /** Jobs that match and that the verb may be done to, over the limit too. */
  matched: number
  /** Jobs changed, or that would be. */
  changed: number
  /** Active descendants cancelled with them, or that would be. */
  cancelledDescendants: number
  /** The first ten, as they are after (or before, in a dry run); deleted ones as they were. */
  sample: Job[]
}

/** Most jobs of one call. */
export const MAX_BULK = 10_000
const SAMPLE = 10
/** Jobs of one transaction. */
const CHUNK = 500
/** Transactions on trees that are under way at once. */
const TREES_AT_ONCE = 3
/** Of so many of the first jobs it is kept what they were: should some of them be left alone, others make the sample. */
const KEPT = 10 * SAMPLE

/**
 * Does a verb to the jobs that match. `ended` is told after each transaction.
 *
 * @throws {ValidationError} an empty filter, or a limit out of range
 */
export async function bulk(
  db: Database,
  verb: BulkVerb,
  filter: JobFilter,
  { dryRun = false, limit = 1000, ...options }: BulkOptions,
  ended: (report: EndReport) => Promise<void>,
): Promise<BulkReport> {
  check(filter, limit)
  const matched = await countTargets(db, verb, filter)
  const targets = matched === 0 ? [] : await findTargets(db, verb, filter, limit)
  if (dryRun) {
    const cancelledDescendants = await transaction(db, (tx) => countBelow(tx, verb, targets), { repeatableRead: true })
    const sample = await jobsInOrder(db, targets.slice(0, SAMPLE))
    return { dryRun, matched, changed: targets.length, cancelledDescendants, sample }
  }
  const run = new BulkRun(db, verb, filter, options, ended)
  await run.all(targets)
  const changed = targets.filter((target) => run.changed.has(target.id))
  const first = changed.slice(0, SAMPLE)
  const now = new Map((await jobsInOrder(db, first)).map((job) => [job.id, job]))
  return {
    dryRun,
    matched,
    changed: changed.length,
    cancelledDescendants: run.cancelledDescendants,
    sample: first.flatMap(({ id }) => now.get(id) ?? run.before.get(id) ?? []),
  }
}

function check(filter: JobFilter, limit: number): void {
  const { archived, search, error, metadata, ...rest } = filter
  const texts = [search, error].some((text) => text !== undefined && text !== null && text !== '')
  const labels = metadata !== undefined && metadata !== null && JSON.stringify(metadata) !== '{}'
  const others = Object.values(rest).some((value) => value !== undefined && value !== null)
  if (!(archived === true || texts || labels || others)) {
    throw ValidationError.of('filter', 'must say which jobs: an empty one is refused')
  }
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_BULK) {
    throw ValidationError.of('limit', `must be from 1 to ${MAX_BULK}`)
  }
}

async function jobsInOrder(db: Database, targets: readonly Target[]): Promise<Job[]> {
  const jobs = await jobsById(
    db,
    targets.map((target) => target.id),
    ALL_HEAVY,
  )
  const byId = new Map(jobs.map((job) => [job.id, job]))
  return targets.flatMap((target) => byId.get(target.id) ?? [])
}

/** What one transaction did; told to the run once it has committed. */
interface Chunk extends EndReport {
  changed: JobTable[]
  /** Of those and of what is still to come: cancelled with another that was above them. */
  swept: string[]
  cancelled: number
}

class BulkRun {
  readonly changed = new Set<string>()
  /** The first of the jobs as they were under the locks. */
  readonly before = new Map<string, Job>()
  cancelledDescendants = 0
  readonly #kept = new Set<string>()
  readonly #db: Database
  readonly #verb: BulkVerb
  readonly #filter: JobFilter
  readonly #options: VerbOptions
  readonly #ended: (report: EndReport) => Promise<void>

  constructor(
    db: Database,
    verb: BulkVerb,
    filter: JobFilter,
    options: VerbOptions,
    ended: (report: EndReport) => Promise<void>,
  ) {
    this.#db = db
    this.#verb = verb
    this.#filter = filter
    this.#options = options
    this.#ended = ended
  }

  async all(targets: readonly Target[]): Promise<void> {
    for (const { id } of targets.slice(0, KEPT)) this.#kept.add(id)
    const trees = [...groupBy(targets, (target) => target.tree_id).values()]
    const flat = trees.filter((tree) => !tree.some((target) => target.has_children)).flat()
    const others = trees.filter((tree) => tree.some((target) => target.has_children))
    for (let start = 0; start < flat.length; start += CHUNK) {
      const left = await this.#leaves(flat.slice(start, start + CHUNK))
      others.push(...groupBy(left, (target) => target.tree_id).values())
    }
    await this.#trees(others)
  }

  /** Trees one by one, some at a time: what takes the time is mostly the disk. */
  async #trees(trees: readonly Target[][]): Promise<void> {
    const rest = trees.values()
    const lanes = Array.from({ length: TREES_AT_ONCE }, async () => {
      for (const tree of rest) await this.#tree(tree)
    })
    const failed = (await Promise.allSettled(lanes)).find((lane) => lane.status === 'rejected')
    if (failed) throw failed.reason
  }

  /** Jobs without children, of many trees; returns those whose lock was not to be had, or that have got children. */
  async #leaves(targets: readonly Target[]): Promise<Target[]> {
    const { chunk, left } = await transaction(this.#db, async (tx) => {
      const trees = [...new Set(targets.map((target) => target.tree_id))]
      const buckets = await tryLockTreesShared(tx, trees)
      const mine = targets.filter((target) => buckets.has(treeBucket(target.tree_id))).map((target) => target.id)
      // Never waits for a job's own row: a settle under way locks them in an order of its own. Then their parents'.
      const rows = await lockFree(tx, mine)
      const locked = new Set(rows.map((row) => row.id))
      const parents = await lockJobs(
        tx,
        rows.map((row) => row.parent_id),
      )
      const withChildren = await parentsAmong(tx, [...locked])
      const still = await stillTargets(tx, this.#verb, this.#filter, [...locked])
      const acting = rows.filter((row) => still.has(row.id) && !withChildren.has(row.id))
      return {
        chunk: await this.#act(tx, acting, parents),
        left: targets.filter(({ id }) => !locked.has(id) || withChildren.has(id)),
      }
    })
    await this.#commit(chunk)
    return left
  }

  /** Jobs of one tree, from the top down. Locks the tree exclusively. */
  async #tree(targets: readonly Target[]): Promise<void> {
    const todo = targets.toSorted((a, b) => a.depth - b.depth).map((target) => target.id)
    // Cancelled with one above them, so that they match no longer, and yet are what the verb is for.
    const swept = new Set<string>()
    for (let start = 0; start < todo.length; start += CHUNK) {
      const ids = todo.slice(start, start + CHUNK)
      const chunk = await transaction(this.#db, async (tx) => {
        await lockTreeExclusive(tx, targets[0]!.tree_id)
        // Claims take no tree lock: what they leave is known under the rows' locks.
        await lockWithParents(tx, ids)
        const still = await stillTargets(tx, this.#verb, this.#filter, todo.slice(start))
        const active = [...still.values()].filter((row) => !isTerminal(row.state as JobState)).map((row) => row.id)
        const mine = ids.filter((id) => still.has(id) || swept.has(id))
        const result: Chunk = { changed: [], swept: [], cancelled: 0, woken: [], failing: [] }
        for (const level of levelsOf(mine, targets)) {
          const rows = await lockWithParents(tx, level)
          const done = rows.jobs.filter((row) => this.#verb.isDone(row))
          const acted = await this.#act(
            tx,
            rows.jobs.filter((row) => !this.#verb.isDone(row)),
            rows.parents,
          )
          result.swept.push(...sweptOf(rows.jobs, active))
          result.changed.push(...done, ...acted.changed)
          result.cancelled += acted.cancelled
          result.woken.push(...acted.woken)
          result.failing.push(...acted.failing)
        }
        const later = new Set(todo.slice(start + CHUNK))
        result.swept.push(
          ...(await cancelledOf(
            tx,
            active.filter((id) => later.has(id)),
          )),
        )
        return result
      })
      for (const id of chunk.swept) swept.add(id)
      await this.#commit(chunk)
    }
  }

  async #act(tx: Tx, rows: readonly JobTable[], parents: ReadonlyMap<string, JobTable>): Promise<Chunk> {
    if (rows.length === 0) return { changed: [], swept: [], cancelled: 0, woken: [], failing: [] }
    const acted = await this.#verb.act(tx, rows, parents, this.#options)
    // Of those that it was for, the verb itself has cancelled the active ones.
    const own = await cancelledOf(
      tx,
      rows.filter((row) => !isTerminal(row.state as JobState)).map((row) => row.id),
    )
    return { ...acted, changed: [...rows], swept: [], cancelled: acted.cancelled - own.length }
  }

  async #commit({ changed, swept, cancelled, woken, failing }: Chunk): Promise<void> {
    for (const row of changed) {
      this.changed.add(row.id)
      if (this.#kept.has(row.id)) this.before.set(row.id, jobFromRow(row))
    }
    this.cancelledDescendants += cancelled - swept.length
    await this.#ended({ woken, failing })
  }
}

/** Those that were active when the transaction began, and have been cancelled by it before their turn. */
function sweptOf(rows: readonly JobTable[], active: readonly string[]): string[] {
  const before = new Set(active)
  return rows.filter((row) => row.state === 'cancelled' && before.has(row.id)).map((row) => row.id)
}

/** Jobs by depth, the upper ones first. */
function levelsOf(ids: readonly string[], targets: readonly Target[]): string[][] {
  const depths = new Map(targets.map((target) => [target.id, target.depth]))
  return [...groupBy(ids, (id) => depths.get(id)!)].sort(([a], [b]) => a - b).map(([, level]) => level)
}

/** Locks jobs and their parents in the one order. Missing ones are left out. */
async function lockWithParents(
  tx: Tx,
  ids: readonly string[],
): Promise<{ jobs: JobTable[]; parents: Map<string, JobTable> }> {
  const places = await jobsById(tx, ids, new Set())
  const rows = await lockJobs(tx, [...ids, ...places.map((job) => job.parentId)])
  return { jobs: ids.flatMap((id) => rows.get(id) ?? []), parents: rows }
}
