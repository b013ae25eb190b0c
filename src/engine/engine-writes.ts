import type { Queryable } from '../db/database.ts'
import { statement } from '../db/statement.ts'

/**
 * Says, for the rest of this transaction, that what deletes jobs in it is the engine, which writes the events and settles
 * the edges itself: the trigger that does so for plain SQL leaves it alone. Moves need no such word, they raise `version`.
 */
export async function engineDeletes(tx: Queryable): Promise<void> {
  await tx.query(setWriter)
}

// The transaction's own, so that it holds through a pooler and ends with it.
const setWriter = statement('engine-writes.set-writer', () => `select set_config('coppice.writer', 'engine', true)`)
