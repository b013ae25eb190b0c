import type { Database } from '../../db/database.ts'
import type { Job } from '../../engine/job.ts'
import { childCounts } from '../../engine/reads/child-counts.ts'
import { NO_HEAVY } from '../../engine/reads/columns.ts'
import { jobsById } from '../../engine/reads/jobs-by-id.ts'
import type { PageRequest } from '../../engine/reads/page.ts'
import { readTrees, type TreeNodesRequest, type Trees } from '../../engine/reads/tree.ts'
import type { JobState } from '../../engine/states.ts'
import type { Outline } from './outline.ts'

/** Trees of up to this many jobs are read whole; of larger ones what is going on, and numbers. */
const WHOLE = 1000
/** Failed jobs of a large tree, and jobs of any state near its root. */
const FAILED = 100
const NEAR_ROOT = 200
const NEAR_DEPTH = 2

const GOING_ON: readonly JobState[] = ['running', 'waiting', 'paused']

/** What was read of a tree, and the snapshot that it was read in, from which a feed goes on without a gap. */
export interface TreeReading {
  readonly outline: Outline
  readonly snapshot: string
  /** The root's row. */
  readonly root: Job
}

/** Reads what of a tree may be worth showing. Undefined when its root is gone. */
export async function readTree(db: Database, treeId: string): Promise<TreeReading | undefined> {
  const whole = await readTrees(db, {
    roots: [treeId],
    counts: [treeId],
    nodes: [nodes(treeId, WHOLE, null)],
    heavy: NO_HEAVY,
  })
  if (!whole.nodes[0]!.hasNextPage)
    return readingOf(
      whole,
      treeId,
      whole.nodes[0]!.edges.map(({ node }) => node),
      new Map(),
    )
  const parts = await readTrees(db, {
    roots: [treeId],
    counts: [treeId],
    nodes: [
      nodes(treeId, WHOLE, GOING_ON),
      nodes(treeId, FAILED, ['failed']),
      { ...nodes(treeId, NEAR_ROOT, null), maxDepth: NEAR_DEPTH },
    ],
    heavy: NO_HEAVY,
  })
  const jobs = parts.nodes.flatMap((page) => page.edges.map(({ node }) => node))
  const all = await withAncestors(db, [...parts.roots.values(), ...jobs])
  const parents = all.filter((job) => job.childCount > 0).map((job) => job.id)
  return readingOf(parts, treeId, all, await childCounts(db, parents))
}

/** A page from the front. */
function nodes(treeId: string, size: number, states: readonly JobState[] | null): TreeNodesRequest {
  const page: PageRequest = { size, backwards: false, after: null, before: null }
  return { treeId, page, states, maxDepth: null }
}

/** The jobs and whatever of the way from the root to them is there, parents before their children. */
async function withAncestors(db: Database, jobs: readonly Job[]): Promise<Job[]> {
  const found = new Map(jobs.map((job) => [job.id, job]))
  let missing = parentsNotIn(found, found.values())
  while (missing.length > 0) {
    const parents = await jobsById(db, missing, NO_HEAVY)
    for (const parent of parents) found.set(parent.id, parent)
    missing = parentsNotIn(found, parents)
  }
  return [...found.values()].sort((a, b) => a.depth - b.depth || (a.id < b.id ? -1 : 1))
}

function parentsNotIn(found: ReadonlyMap<string, Job>, jobs: Iterable<Job>): string[] {
  const parents = new Set<string>()
  for (const { parentId } of jobs) if (parentId !== null && !found.has(parentId)) parents.add(parentId)
  return [...parents]
}

function readingOf(
  { roots, counts, snapshot }: Trees,
  treeId: string,
  jobs: readonly Job[],
  childCounts: Outline['childCounts'],
): TreeReading | undefined {
  const root = roots.get(treeId)
  if (!root) return undefined
  const end = root.finishedAt ?? new Date()
  const outline: Outline = {
    root,
    jobs: jobs.filter((job) => job.id !== treeId),
    childCounts,
    counts: counts.get(treeId)!,
    ageMs: end.getTime() - root.createdAt.getTime(),
  }
  return { outline, snapshot, root }
}
