import { isDeepStrictEqual } from 'node:util'
import { until } from '../../support/until.ts'
import { SEEN_FIELDS, type SeenJob, type TreeSubscriber } from './subscribers.ts'

const COUNTS = 'total open queued running waiting paused completed failed cancelled'

const TREE = `query ($id: ID!, $after: String) {
  jobTree(id: $id) {
    counts { ${COUNTS} }
    nodes(first: 10000, after: $after) { pageInfo { hasNextPage endCursor } nodes { id version ${SEEN_FIELDS} } }
  }
}`

interface Page {
  counts: object
  nodes: { pageInfo: { hasNextPage: boolean; endCursor: string }; nodes: SeenJob[] }
}

/** Reads each tree afresh and compares; a difference must go away in time. */
export async function differingTrees(url: string, trees: readonly TreeSubscriber[], timeout: number) {
  let differing = 0
  let treeJobs = 0
  for (const { root, tree } of trees) {
    const same = async () => {
      const fresh = await readTree(url, root)
      treeJobs += fresh.jobs.size
      const equal = isDeepStrictEqual(fresh.jobs, new Map(tree.jobs)) && isDeepStrictEqual(fresh.counts, tree.counts)
      if (!equal) treeJobs -= fresh.jobs.size
      return equal
    }
    const equal = await until(same, { timeout, interval: 500 }).catch(() => false)
    if (!equal) differing++
  }
  return { trees: trees.length, treeJobs, differing }
}

async function readTree(url: string, id: string) {
  const jobs = new Map<string, SeenJob>()
  for (let after: string | null = null; ; ) {
    const { counts, nodes } = await readPage(url, id, after)
    for (const job of nodes.nodes) jobs.set(job.id, job)
    if (!nodes.pageInfo.hasNextPage) return { counts, jobs }
    after = nodes.pageInfo.endCursor
  }
}

async function readPage(url: string, id: string, after: string | null): Promise<Page> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query: TREE, variables: { id, after } }),
  })
  const { data, errors } = (await response.json()) as { data: { jobTree: Page } | null; errors?: unknown }
  if (!data) throw new Error(JSON.stringify(errors))
  return data.jobTree
}
