import type { TableNames } from '../db/statement.ts'

/**
 * The head of every INSERT into the event log; a SELECT of these columns follows. Each move writes its event in the
 * statement that makes it.
 */
export function insertEvents(t: TableNames): string {
  return `insert into ${t.jobEvent}
      (kind, job_id, tree_id, parent_id, type, "from", "to", phase, wave, attempt, version, actor, reason, detail)`
}
