import type { Database } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import type { PreparedJob } from '../prepare.ts'

/** Which of the jobs to be spawned are there already, by type and key: their ids. */
export async function existingChildren(
  db: Database,
  parentId: string,
  jobs: readonly PreparedJob[],
): Promise<Map<PreparedJob, string>> {
  const keyed = jobs.filter((job) => job.key !== null)
  if (keyed.length === 0) return new Map()
  const rows = await db.query(find, [parentId, keyed.map((job) => job.type), keyed.map((job) => job.key)])
  const ids = new Map(rows.map((row) => [JSON.stringify([row.type, row.key]), row.id]))
  const found = new Map<PreparedJob, string>()
  for (const job of keyed) {
    const id = ids.get(JSON.stringify([job.type, job.key]))
    if (id !== undefined) found.set(job, id)
  }
  return found
}

const find = statement<{ id: string; type: string; key: string }>(
  'children.find-keyed',
  (t) => `
  select distinct j.id, j.type, j.key
  from unnest($2::text[], $3::text[]) wanted(type, key)
  join ${t.job} j on j.parent_id = $1 and j.type = wanted.type and j.key = wanted.key`,
)
