import type { Database } from '../../db/database.ts'
import type { FeedBatch } from '../feed/batch.ts'
import type { JobEvent } from '../feed/event.ts'
import type { Job } from '../job.ts'
import type { Heavy } from '../reads/columns.ts'
import { jobsById } from '../reads/jobs-by-id.ts'
import type { StateCounts } from '../reads/state-counts.ts'
import { patiently } from './patiently.ts'
import type { TreeCount } from './tree-counts.ts'
import type { TreeUpdate } from './tree-update.ts'

/** While it catches up, counts are told this old, in milliseconds. */
const COUNTS_AGE_MS = 1_000
/** Jobs told of that are ahead of the events: without a place here they are told again, which does no harm. */
const MAX_AHEAD = 10_000

/** What changes are read with. */
export interface ChangesContext {
  readonly db: Database
  readonly count: TreeCount
  readonly heavy: Heavy
  readonly stop: AbortSignal
}

/** Makes updates of the events of one tree. */
export class TreeChanges {
  readonly #context: ChangesContext
  /** Jobs are read as they are now: what of their events is still to come has been told by that. */
  readonly #ahead = new Map<string, number>()
  #counts: StateCounts | undefined
  #countedAt = Number.NEGATIVE_INFINITY
  #countsStale = true
  #told: { counts: StateCounts; caughtUp: boolean } | undefined

  /** @param told the last update of the snapshot that these are the changes of. */
  constructor(context: ChangesContext, told: TreeUpdate | undefined) {
    this.#context = context
    if (told === undefined) return
    this.#told = { counts: told.counts, caughtUp: told.caughtUp }
    this.#counts = told.counts
    this.#countsStale = !told.caughtUp
  }

  /**
   * What a batch changes; undefined when that has been told already.
   *
   * @param beat an update is due, whatever is in it.
   */
  async update(batch: FeedBatch, beat: boolean): Promise<TreeUpdate | undefined> {
    const { db, heavy, stop } = this.#context
    const { cursor, caughtUp, ended } = batch
    const last = this.#news(batch.events)
    const ids = [...new Set([...last.keys(), ...parentsOf(last.values())])]
    const [found, counts] = await Promise.all([
      ids.length === 0 ? [] : patiently(() => jobsById(db, ids, heavy), stop),
      this.#count(caughtUp),
    ])
    const byId = new Map(found.map((job) => [job.id, job]))
    this.#noteAhead(last, byId)
    const jobs = found.filter((job) => job.archivedAt === null).sort(parentsFirst)
    const removed = [...last.keys()].filter((id) => byId.get(id)?.archivedAt !== null)
    const nothing = last.size === 0 && sameCounts(counts, this.#told?.counts) && caughtUp === this.#told?.caughtUp
    if (nothing && !beat && ended === null) return undefined
    this.#told = { counts, caughtUp }
    return { reset: false, jobs, removed, counts, cursor, caughtUp, ended }
  }

  /** The last event of each job that has not been told in full. */
  #news(events: readonly JobEvent[]): Map<string, JobEvent> {
    const last = new Map<string, JobEvent>()
    for (const event of events) {
      if (event.kind !== 'progress') this.#countsStale = true
      const told = this.#ahead.get(event.jobId)
      if (told !== undefined && (event.version >= told || event.kind === 'deleted')) this.#ahead.delete(event.jobId)
      if (told === undefined || event.version > told) last.set(event.jobId, event)
    }
    return last
  }

  #noteAhead(last: ReadonlyMap<string, JobEvent>, found: ReadonlyMap<string, Job>): void {
    for (const [id, event] of last) {
      const told = found.get(id)?.version ?? Number.POSITIVE_INFINITY
      if (told > event.version && event.kind !== 'deleted') this.#ahead.set(id, told)
    }
    if (this.#ahead.size > MAX_AHEAD) this.#ahead.clear()
  }

  async #count(caughtUp: boolean): Promise<StateCounts> {
    const { count, stop } = this.#context
    const old = performance.now() - this.#countedAt > COUNTS_AGE_MS
    if (this.#counts === undefined || (this.#countsStale && (caughtUp || old))) {
      this.#countsStale = false
      this.#counts = await patiently(() => count.fresh(), stop)
      this.#countedAt = performance.now()
    }
    return this.#counts
  }
}

/** Parents whose counters of children the events may have changed: that is no event of the parent's own. */
function* parentsOf(events: Iterable<JobEvent>): Iterable<string> {
  for (const { kind, parentId } of events) if (kind !== 'progress' && parentId !== null) yield parentId
}

function parentsFirst(a: Job, b: Job): number {
  return a.depth - b.depth || (a.id < b.id ? -1 : 1)
}

function sameCounts(a: StateCounts, b: StateCounts | undefined): boolean {
  return b !== undefined && (Object.keys(a) as (keyof StateCounts)[]).every((state) => a[state] === b[state])
}
