import type { Queryable } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import type { WakeReceiptTable } from '../../db/tables.ts'
import type { WakeSource } from '../job.ts'

/** The proof of a parent's last wake. */
export interface WakeReceipt {
  parentId: string
  childSetKey: string
  operationId: string
  wave: number
  deliveredAttempt: number | null
  source: WakeSource
  forced: boolean
  at: Date
}

/** The receipts of these parents; absent where there is none. */
export async function receiptsOf(q: Queryable, parentIds: readonly string[]): Promise<WakeReceipt[]> {
  return (await q.query(findReceipts, [parentIds])).map((row) => ({
    parentId: row.parent_id,
    childSetKey: row.child_set_key,
    operationId: row.operation_id,
    wave: row.wave,
    deliveredAttempt: row.delivered_attempt,
    source: row.source as WakeSource,
    forced: row.forced,
    at: row.at,
  }))
}

const findReceipts = statement<WakeReceiptTable>(
  'reads.receipts',
  (t) => `select * from ${t.wakeReceipt} where parent_id = any($1::uuid[])`,
)
