import DataLoader from 'dataloader'
import type { Database } from '../db/database.ts'
import type { Assignee } from '../engine/assignee.ts'
import { explainJobs } from '../engine/explain/explain.ts'
import type { Explanation } from '../engine/explain/explanation.ts'
import type { JobEvent } from '../engine/feed/event.ts'
import type { Job } from '../engine/job.ts'
import { assignedCounts, assigneesById } from '../engine/reads/assignees.ts'
import { type Attempt, attemptsOf } from '../engine/reads/attempts.ts'
import { childCounts } from '../engine/reads/child-counts.ts'
import type { Heavy } from '../engine/reads/columns.ts'
import { eventPages, eventsById } from '../engine/reads/events.ts'
import { type GroupCount, groupCounts } from '../engine/reads/groups.ts'
import { childPages, type JobListRequest } from '../engine/reads/job-page.ts'
import { jobsById } from '../engine/reads/jobs-by-id.ts'
import { type Page, type PageRequest, pageOf } from '../engine/reads/page.ts'
import { receiptsOf, type WakeReceipt } from '../engine/reads/receipts.ts'
import { type StateCounts, stateCounts } from '../engine/reads/state-counts.ts'
import { type Worker, workersById } from '../engine/reads/workers.ts'
import type { ApiEngine } from './api-engine.ts'
import { TreeLoader } from './tree-loader.ts'

/** How the children of a job are listed. */
export type ChildrenRequest = Omit<JobListRequest, 'heavy'>

/**
 * What one operation reads, batched: everything that its fields ask for at one level of the answer becomes one
 * statement. Ids are stored ids.
 */
export class Loaders {
  readonly job: DataLoader<string, Job | null>
  readonly event: DataLoader<string, JobEvent | null>
  readonly assignee: DataLoader<string, Assignee | null>
  readonly assignedCounts: DataLoader<string, StateCounts>
  readonly worker: DataLoader<string, Worker | null>
  readonly receipt: DataLoader<string, WakeReceipt | null>
  readonly childCounts: DataLoader<string, StateCounts>
  readonly explanations: DataLoader<string, Explanation[]>
  readonly trees: TreeLoader
  readonly heavy: Heavy
  readonly #db: Database
  /** One loader for each way that lists are asked for. */
  readonly #lists = new Map<string, DataLoader<string, unknown>>()
  #groups: Promise<GroupCount[]> | undefined

  constructor({ database: db, jobs }: Pick<ApiEngine, 'database' | 'jobs'>, heavy: Heavy) {
    this.#db = db
    this.heavy = heavy
    this.job = rows(
      (ids) => jobsById(db, ids, heavy),
      (job) => job.id,
    )
    this.event = rows(
      (ids) => eventsById(db, ids),
      (event) => event.id,
    )
    this.assignee = rows(
      (ids) => assigneesById(db, ids),
      (assignee) => assignee.id,
    )
    this.assignedCounts = lists(
      (ids) => assignedCounts(db, ids),
      () => stateCounts([]),
    )
    this.worker = rows(
      (ids) => workersById(db, ids),
      (worker) => worker.id,
    )
    this.receipt = rows(
      (ids) => receiptsOf(db, ids),
      (receipt) => receipt.parentId,
    )
    this.childCounts = lists(
      (ids) => childCounts(db, ids),
      () => stateCounts([]),
    )
    this.explanations = lists(
      (ids) => explainJobs(db, ids, { jobs }),
      () => [],
    )
    this.trees = new TreeLoader(db, heavy, (jobs) => this.prime(jobs))
  }

  /** Pages of children by parent. */
  children(request: ChildrenRequest): DataLoader<string, Page<Job>> {
    return this.#list(['children', request], () =>
      lists(
        async (ids) => {
          const pages = await childPages(this.#db, ids, { ...request, heavy: this.heavy })
          for (const page of pages.values()) this.prime(page.edges.map((edge) => edge.node))
          return pages
        },
        () => pageOf([], request.page, (edge: never) => edge),
      ),
    )
  }

  /** Pages of events by job. */
  events(page: PageRequest): DataLoader<string, Page<JobEvent>> {
    return this.#list(['events', page], () =>
      lists(
        (ids) => eventPages(this.#db, ids, page),
        () => pageOf([], page, (edge: never) => edge),
      ),
    )
  }

  /** Newest attempts by job. */
  attempts(first: number): DataLoader<string, Attempt[]> {
    return this.#list(['attempts', first], () =>
      lists(
        (ids) => attemptsOf(this.#db, ids, first),
        () => [],
      ),
    )
  }

  /** The jobs of which `wanted` holds, by state. All fields that count jobs by queue or type share one statement. */
  async countsOf(wanted: (group: GroupCount) => boolean): Promise<StateCounts> {
    this.#groups ??= groupCounts(this.#db)
    return stateCounts((await this.#groups).filter(wanted))
  }

  /** Jobs that were read on another way and need not be read again. */
  prime(jobs: Iterable<Job>): void {
    for (const job of jobs) this.job.prime(job.id, job)
  }

  /** Forgets everything that was read: before each frame of a subscription, and after each mutation. */
  clear(): void {
    const { job, event, assignee, assignedCounts, worker, receipt, childCounts, explanations } = this
    const loaders = [job, event, assignee, assignedCounts, worker, receipt, childCounts, explanations]
    for (const loader of loaders) loader.clearAll()
    this.#groups = undefined
    this.#lists.clear()
  }

  #list<Value>(key: unknown, make: () => DataLoader<string, Value>): DataLoader<string, Value> {
    const text = JSON.stringify(key)
    let loader = this.#lists.get(text) as DataLoader<string, Value> | undefined
    if (!loader) {
      loader = make()
      this.#lists.set(text, loader)
    }
    return loader
  }
}

function rows<Row>(
  read: (ids: readonly string[]) => Promise<Row[]>,
  idOf: (row: Row) => string,
): DataLoader<string, Row | null> {
  return new DataLoader(async (ids) => {
    const found = new Map((await read(ids)).map((row) => [idOf(row), row]))
    return ids.map((id) => found.get(id) ?? null)
  })
}

function lists<Value>(
  read: (ids: readonly string[]) => Promise<Map<string, Value>>,
  none: () => Value,
): DataLoader<string, Value> {
  return new DataLoader(async (ids) => {
    const found = await read(ids)
    return ids.map((id) => found.get(id) ?? none())
  })
}
