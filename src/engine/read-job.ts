import type { Queryable } from '../db/database.ts'
import { statement } from '../db/statement.ts'
import type { JobTable } from '../db/tables.ts'
import { type Job, jobFromRow } from './job.ts'

/** A job with all its columns; null if there is none. */
export async function readJob(q: Queryable, id: string): Promise<Job | null> {
  const [row] = await q.query(read, [id])
  return row ? jobFromRow(row) : null
}

const read = statement<JobTable>('job.read', (t) => `select * from ${t.job} where id = $1`)
