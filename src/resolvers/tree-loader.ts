import DataLoader from 'dataloader'
import type { Database } from '../db/database.ts'
import type { Job } from '../engine/job.ts'
import type { Heavy } from '../engine/reads/columns.ts'
import type { Page } from '../engine/reads/page.ts'
import type { StateCounts } from '../engine/reads/state-counts.ts'
import { readTrees, type TreeNodesRequest, type Trees } from '../engine/reads/tree.ts'

/** One part of a tree. */
type Part =
  | { kind: 'root'; treeId: string }
  | { kind: 'counts'; treeId: string }
  | { kind: 'nodes'; list: TreeNodesRequest }
  | { kind: 'snapshot' }

/**
 * Parts of trees. What the fields of a tree ask for in one go is read in one snapshot, so nothing is cached: a later
 * question gets a snapshot of its own.
 */
export class TreeLoader {
  readonly #parts: DataLoader<Part, unknown>

  /** `found` is told of the jobs that were read. */
  constructor(db: Database, heavy: Heavy, found: (jobs: Iterable<Job>) => void) {
    this.#parts = new DataLoader<Part, unknown>(
      async (parts) => {
        const lists = parts.flatMap((part) => (part.kind === 'nodes' ? [part.list] : []))
        const trees = await readTrees(db, {
          roots: treesOf(parts, 'root'),
          counts: treesOf(parts, 'counts'),
          nodes: lists,
          heavy,
        })
        found(trees.roots.values())
        for (const page of trees.nodes) found(page.edges.map((edge) => edge.node))
        return parts.map((part) => answer(part, trees, lists))
      },
      { cache: false },
    )
  }

  /** Null where it was deleted. */
  root(treeId: string): Promise<Job | null> {
    return this.#parts.load({ kind: 'root', treeId }) as Promise<Job | null>
  }

  counts(treeId: string): Promise<StateCounts> {
    return this.#parts.load({ kind: 'counts', treeId }) as Promise<StateCounts>
  }

  nodes(list: TreeNodesRequest): Promise<Page<Job>> {
    return this.#parts.load({ kind: 'nodes', list }) as Promise<Page<Job>>
  }

  /** `pg_current_snapshot()` that the other parts are read in. */
  snapshot(): Promise<string> {
    return this.#parts.load({ kind: 'snapshot' }) as Promise<string>
  }
}

function treesOf(parts: readonly Part[], kind: 'root' | 'counts'): string[] {
  return [...new Set(parts.flatMap((part) => (part.kind === kind ? [part.treeId] : [])))]
}

function answer(part: Part, trees: Trees, lists: readonly TreeNodesRequest[]): unknown {
  switch (part.kind) {
    case 'root':
      return trees.roots.get(part.treeId) ?? null
    case 'counts':
      return trees.counts.get(part.treeId)
    case 'nodes':
      return trees.nodes[lists.indexOf(part.list)]
    case 'snapshot':
      return trees.snapshot
  }
}
