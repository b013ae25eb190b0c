import type { Database } from '../../db/database.ts'
import type { Feed } from '../feed/hub.ts'
import type { Slots } from '../feed/slots.ts'
import type { Heavy } from '../reads/columns.ts'
import { pageRequest } from '../reads/page.ts'
import { readTrees, TREE_PAGE_LIMITS } from '../reads/tree.ts'
import { patiently } from './patiently.ts'
import { encodeTreePlace, type TreePlace } from './tree-cursor.ts'
import type { TreeUpdate } from './tree-update.ts'

/** Most jobs of one update. */
const FRAME = 1_000

/** What a snapshot is read with. */
export interface SnapshotContext {
  readonly db: Database
  readonly feed: Pick<Feed, 'cursorAt'>
  /** For reads of whole trees. */
  readonly slots: Slots
}

/**
 * A tree as it is, in updates of up to 1,000 jobs. Up to 10,000 jobs are read in one snapshot and held until they are
 * told. Of a larger tree each further 10,000 are read when their turn comes: they are not older, and what changed
 * meanwhile follows, since the feed goes on from the first snapshot.
 *
 * @param from in the middle of a snapshot that was broken off; undefined: a new one begins.
 * @returns where the feed goes on.
 */
export async function* treeSnapshot(
  { db, feed, slots }: SnapshotContext,
  options: { treeId: string; from: TreePlace | undefined; heavy: Heavy; stop: AbortSignal },
): AsyncGenerator<TreeUpdate, TreePlace> {
  const { treeId, from, heavy, stop } = options
  let start = from?.feed
  let position = from?.position ?? null
  let whole = from === undefined
  for (let reset = from === undefined; ; ) {
    const page = pageRequest({ first: TREE_PAGE_LIMITS.max, after: position }, TREE_PAGE_LIMITS)
    const nodes = [{ treeId, page, states: null, maxDepth: null }]
    const release = await slots.acquire()
    const read = () => {
      // Whoever has left meanwhile is not read for.
      stop.throwIfAborted()
      return readTrees(db, { roots: [], counts: [treeId], nodes, heavy })
    }
    const trees = await patiently(read, stop).finally(release)
    const counts = trees.counts.get(treeId)!
    const { edges, hasNextPage } = trees.nodes[0]!
    start ??= feed.cursorAt(trees.snapshot)
    whole &&= !hasNextPage
    do {
      const frame = edges.splice(0, FRAME)
      const last = edges.length === 0 && !hasNextPage
      position = frame.at(-1)?.cursor ?? position
      yield {
        reset,
        jobs: frame.map(({ node }) => node),
        removed: [],
        counts,
        cursor: encodeTreePlace(last || position === null ? { feed: start } : { feed: start, position }),
        caughtUp: last && whole,
        ended: null,
      }
      reset = false
    } while (edges.length > 0)
    if (!hasNextPage) return { feed: start }
  }
}
