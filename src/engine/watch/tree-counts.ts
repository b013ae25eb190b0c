import type { Database } from '../../db/database.ts'
import type { StateCounts } from '../reads/state-counts.ts'
import { countTrees } from '../reads/tree.ts'
import { PacedRead } from './paced-read.ts'

/** Counting a tree takes time with its size: no more than a fifth of the time of one connection goes into it. */
const REST = 4

/** The states of one tree, counted for all who watch it together. */
export interface TreeCount {
  /** Counted after this call. */
  fresh(): Promise<StateCounts>
  /** To be called once, by whoever got this. */
  release(): void
}

/** Counts the trees that are watched in this process. */
export function createTreeCounts(db: Database): (treeId: string) => TreeCount {
  const trees = new Map<string, { read: PacedRead<StateCounts>; watchers: number }>()

  return (treeId) => {
    let tree = trees.get(treeId)
    if (tree === undefined) {
      const read = new PacedRead(async () => (await countTrees(db, [treeId])).get(treeId)!, REST)
      tree = { read, watchers: 0 }
      trees.set(treeId, tree)
    }
    const shared = tree
    shared.watchers++
    return {
      fresh: () => shared.read.fresh(),
      release() {
        if (--shared.watchers === 0) trees.delete(treeId)
      },
    }
  }
}
