import type { Queryable } from '../../db/database.ts'
import { type Statement, statement } from '../../db/statement.ts'
import type { JobTable } from '../../db/tables.ts'
import { type Job, jobFromRow } from '../job.ts'
import { type Heavy, heavyKey, jobColumns } from './columns.ts'

/** The jobs that have these ids, archived ones too, in no order; absent where there are none. */
export async function jobsById(q: Queryable, ids: readonly string[], heavy: Heavy): Promise<Job[]> {
  return (await q.query(statementFor(heavy), [ids])).map(jobFromRow)
}

const statements = new Map<string, Statement<JobTable>>()

function statementFor(heavy: Heavy): Statement<JobTable> {
  const key = heavyKey(heavy)
  let found = statements.get(key)
  if (!found) {
    found = statement(
      'reads.jobs-by-id',
      (t) => `select ${jobColumns('j', heavy)} from ${t.job} j where j.id = any($1::uuid[])`,
    )
    statements.set(key, found)
  }
  return found
}
