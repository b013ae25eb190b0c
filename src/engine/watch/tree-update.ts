import type { FeedEnd } from '../feed/batch.ts'
import type { Job } from '../job.ts'
import type { StateCounts } from '../reads/state-counts.ts'

/** What the watcher of a tree applies: drop all if `reset`, put `jobs` by id, take `removed` away. */
export interface TreeUpdate {
  /** A fresh snapshot begins: what was told before does not count any more. */
  reset: boolean
  /**
   * New or changed jobs as they are now, by depth and id, so that parents come first; at most 1,000. A parent comes along
   * with a child that changed, for its counters, which are no part of its version: of two copies of a job of the same
   * version the later one counts.
   */
  jobs: Job[]
  /** Ids of jobs that were deleted or archived, also of some that were never told of. */
  removed: string[]
  /** The whole tree by state, without archived jobs. While `caughtUp` is false it may be a second old. */
  counts: StateCounts
  /** Where to go on after this update. */
  cursor: string
  /** Nothing more was known when this was made, and the snapshot is complete. */
  caughtUp: boolean
  /** Set in the last update only. After `cursor_expired` a new snapshot begins by itself: it never ends with that. */
  ended: FeedEnd | null
}
