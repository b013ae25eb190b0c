import type { Engine } from '../../engine/engine.ts'
import { explainJobs } from '../../engine/explain/explain.ts'
import type { Job } from '../../engine/job.ts'
import { writeOut } from '../write-out.ts'
import { describeExplained, type Explained } from './describe.ts'
import { explainedToJson } from './json.ts'

/** Columns of an output that is no terminal. */
const COLUMNS = 100

/** Why these jobs do not move; without those that were deleted meanwhile. */
export async function explained({ database, jobs: known }: Engine, jobs: readonly Job[]): Promise<Explained[]> {
  const ids = jobs.map((job) => job.id)
  const reasons = await explainJobs(database, ids, { jobs: known })
  return jobs.flatMap((job) => {
    const explanations = reasons.get(job.id)
    return explanations ? [{ job, explanations }] : []
  })
}

/** Writes explained jobs: for people, or as JSON of whatever `document` makes of them. */
export async function writeExplained(
  list: readonly Explained[],
  json: boolean,
  document: (jobs: object[]) => object,
): Promise<void> {
  if (json) return writeOut(`${JSON.stringify(document(list.map(explainedToJson)))}\n`)
  const columns = process.stdout.isTTY ? process.stdout.columns : COLUMNS
  const paragraphs = list.map((one) => describeExplained(one, columns).join('\n'))
  await writeOut(paragraphs.map((paragraph) => `${paragraph}\n`).join('\n'))
}
