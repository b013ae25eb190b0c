import type { StateCounts, TreeUpdate } from './types.ts'

/** A tree, kept up to date by its updates. */
export interface TreeState<J> {
  /** By id. While a snapshot is coming in, the part of it that has come. */
  readonly jobs: ReadonlyMap<string, J>
  /** Undefined before the first update. */
  readonly counts: StateCounts | undefined
  /** Of the last update: where to go on. */
  readonly cursor: string | undefined
  /** The snapshot is complete, and nothing more was known. */
  readonly caughtUp: boolean
  /** Applies an update. Repeated or older copies of jobs change nothing. */
  apply(update: TreeUpdate<J>): void
}

/**
 * Makes an empty tree.
 *
 * @example
 * const tree = createTreeState<WatchedJob>()
 * for await (const update of client.watchTree(id)) {
 *   tree.apply(update)
 *   render(tree.jobs, tree.counts)
 * }
 */
export function createTreeState<J extends { id: string; version: number }>(): TreeState<J> {
  const jobs = new Map<string, J>()
  let last: Pick<TreeUpdate<J>, 'counts' | 'cursor' | 'caughtUp'> | undefined
  return {
    jobs,
    get counts() {
      return last?.counts
    },
    get cursor() {
      return last?.cursor
    },
    get caughtUp() {
      return last?.caughtUp ?? false
    },
    apply(update) {
      if (update.reset) jobs.clear()
      for (const job of update.jobs) {
        // Counters of children are no part of the version: of two equal ones the later counts.
        const known = jobs.get(job.id)
        if (known === undefined || known.version <= job.version) jobs.set(job.id, job)
      }
      for (const id of update.removed) jobs.delete(id)
      last = { counts: update.counts, cursor: update.cursor, caughtUp: update.caughtUp }
    },
  }
}
