import type { Database } from '../../db/database.ts'
import type { JobEvent } from '../../engine/feed/event.ts'
import { formatId, formatJobId } from '../../engine/ids.ts'
import type { Job } from '../../engine/job.ts'
import { ALL_HEAVY } from '../../engine/reads/columns.ts'
import { readTrees } from '../../engine/reads/tree.ts'

/** Jobs of one page, payloads and results with them. */
const PAGE = 500

/** A job as JSON: global ids, and without the token that fences its attempts. */
export function jobToJson({ claimToken: _, ...job }: Job): object {
  return {
    ...job,
    id: formatJobId(job.id),
    treeId: formatJobId(job.treeId),
    parentId: job.parentId && formatJobId(job.parentId),
    workerId: job.workerId && formatId('WK', job.workerId),
  }
}

/** An event as JSON: global ids. */
export function eventToJson(event: JobEvent): object {
  return {
    ...event,
    id: formatId('EV', event.id),
    jobId: formatJobId(event.jobId),
    treeId: formatJobId(event.treeId),
    parentId: event.parentId && formatJobId(event.parentId),
  }
}

/**
 * Writes `{ treeId, counts, jobs }` with every job of a tree, parents first, page by page. Each page is read for itself,
 * so a large tree that is at work may look uneven.
 */
export async function writeTreeJson(
  db: Database,
  treeId: string,
  write: (text: string) => Promise<void>,
): Promise<void> {
  let after: string | null = null
  for (let first = true; first || after !== null; first = false) {
    const page = { size: PAGE, backwards: false, after, before: null }
    const request = { treeId, page, states: null, maxDepth: null }
    const trees = await readTrees(db, { roots: [], counts: first ? [treeId] : [], nodes: [request], heavy: ALL_HEAVY })
    if (first)
      await write(`{"treeId":"${formatJobId(treeId)}","counts":${JSON.stringify(trees.counts.get(treeId))},"jobs":[`)
    const { edges, hasNextPage } = trees.nodes[0]!
    const jobs = edges.map(({ node }) => JSON.stringify(jobToJson(node)))
    if (jobs.length > 0) await write(`${first ? '\n' : ',\n'}${jobs.join(',\n')}`)
    after = hasNextPage ? edges.at(-1)!.cursor : null
  }
  await write('\n]}\n')
}
