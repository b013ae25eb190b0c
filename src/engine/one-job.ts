import { statement } from '../db/statement.ts'
import type { JobTable } from '../db/tables.ts'
import type { Tx } from '../db/transaction.ts'
import { NotFoundError } from './errors.ts'
import { type Job, jobFromRow } from './job.ts'
import { findPlace, lockJobs, lockTreeShared } from './locks.ts'

/** A steered job as it is afterwards, and the parents that this woke. */
export interface Steered {
  job: Job
  woken: string[]
}

/** Locks: the tree shared, then the job's row, with its parent's if asked for. */
export async function lockOne(tx: Tx, id: string, withParent = false): Promise<JobTable> {
  const [found] = await tx.query(findPlace, [id])
  if (!found) throw new NotFoundError(id)
  await lockTreeShared(tx, found.tree_id)
  const row = (await lockJobs(tx, withParent ? [id, found.parent_id] : [id])).get(id)
  if (!row) throw new NotFoundError(id)
  return row
}

/** The job as this transaction has left it. */
export async function readBack(tx: Tx, id: string): Promise<Job> {
  const [row] = await tx.query(readJob, [id])
  return jobFromRow(row!)
}

const readJob = statement<JobTable>('control.read', (t) => `select * from ${t.job} where id = $1`)
