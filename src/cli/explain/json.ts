import type { Explanation } from '../../engine/explain/explanation.ts'
import { formatJobId } from '../../engine/ids.ts'
import type { Explained } from './describe.ts'

/** A job and why it does not move, as JSON: global ids. */
export function explainedToJson({ job, explanations }: Explained): object {
  return {
    id: formatJobId(job.id),
    treeId: formatJobId(job.treeId),
    parentId: job.parentId && formatJobId(job.parentId),
    type: job.type,
    key: job.key,
    state: job.state,
    explain: explanations.map(explanationToJson),
  }
}

function explanationToJson(explanation: Explanation): object {
  return { ...explanation, jobs: explanation.jobs.map(formatJobId) }
}
