import type { Database } from '../../db/database.ts'
import { NotFoundError } from '../errors.ts'
import type { Feed } from '../feed/hub.ts'
import { createSlots } from '../feed/slots.ts'
import { formatJobId, parseJobId } from '../ids.ts'
import { ALL_HEAVY, type HeavyColumn } from '../reads/columns.ts'
import { treeIdOf } from '../reads/tree.ts'
import { patiently } from './patiently.ts'
import { Stoppable } from './stoppable.ts'
import { TreeChanges } from './tree-changes.ts'
import { createTreeCounts } from './tree-counts.ts'
import { decodeTreePlace, type TreePlace } from './tree-cursor.ts'
import { treeSnapshot } from './tree-snapshot.ts'
import type { TreeUpdate } from './tree-update.ts'

/** How a tree is watched. */
export interface WatchTreeOptions {
  /** Cursor of an update to go on from; a snapshot if absent. */
  after?: string | null | undefined
  /** Ends it as `return()` does. */
  signal?: AbortSignal | undefined
  /** Columns whose values may be large: those that are not named here are null in the updates. Default: all are read. */
  heavy?: ReadonlySet<HeavyColumn> | undefined
}

/** Watches the tree of a job: see {@link Engine.watchTree}. */
export type WatchTree = (id: string, options?: WatchTreeOptions) => AsyncIterableIterator<TreeUpdate, undefined>

/** Whole trees that are read at the same time in one process. */
const TREE_READS = 2

/** Makes the watching of trees on a feed. */
export function createTreeWatch(db: Database, feed: Pick<Feed, 'subscribe' | 'cursorAt'>): WatchTree {
  const slots = createSlots(TREE_READS)
  const countOf = createTreeCounts(db)

  /** Snapshot, changes; and again, when a cursor has expired. */
  async function* updates(
    jobId: string,
    after: TreePlace | undefined,
    heavy: ReadonlySet<HeavyColumn>,
    stop: AbortSignal,
  ): AsyncGenerator<TreeUpdate> {
    const treeId = await patiently(() => treeIdOf(db, jobId), stop)
    if (treeId === null) throw new NotFoundError(formatJobId(jobId))
    const count = countOf(treeId)
    try {
      for (let place = after; !stop.aborted; place = undefined) {
        let told: TreeUpdate | undefined
        if (place === undefined || place.position !== undefined) {
          const snapshot = treeSnapshot({ db, feed, slots }, { treeId, from: place, heavy, stop })
          let step = await snapshot.next()
          for (; !step.done; step = await snapshot.next()) {
            told = step.value
            yield told
          }
          place = step.value
        }
        const changes = new TreeChanges({ db, count, heavy, stop }, told)
        if (!(yield* changesAfter(place.feed, changes, told?.caughtUp !== true))) return
      }
    } finally {
      count.release()
    }

    /** @returns whether the cursor has expired. */
    async function* changesAfter(after: string, changes: TreeChanges, greet: boolean) {
      let first = true
      for await (const batch of feed.subscribe({ filter: { treeId }, after, signal: stop })) {
        if (batch.ended === 'cursor_expired') return true
        // The snapshot's last update was the first one of what follows it, if it was up to date.
        const beat = first ? greet : batch.events.length === 0
        first = false
        const update = await changes.update(batch, beat)
        if (update !== undefined) yield update
      }
      return false
    }
  }

  return (id, { after, signal, heavy = ALL_HEAVY } = {}) => {
    const jobId = parseJobId(id)
    const place = after == null ? undefined : decodeTreePlace(after)
    return new Stoppable((stop) => updates(jobId, place, heavy, stop), signal)
  }
}
