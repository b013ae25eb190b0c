import type { TableNames } from '../../db/statement.ts'

/** Where a walk over the waiting parents stands. A parent without `waiting_since` counts as waiting since infinity. */
export interface WaitingCursor {
  /** A timestamp that PostgreSQL reads; as `placeSql` writes it, texts are in the order of the instants. */
  since: string
  id: string
}

/** Before the first. */
export const FIRST_WAITING: WaitingCursor = { since: '-infinity', id: '00000000-0000-0000-0000-000000000000' }

/**
 * A common table expression `page`: the next $3 waiting parents behind ($1, $2), in the order of the index job_waiting,
 * those that plain SQL let wait without an instant last.
 */
export function waitingPage(t: TableNames): string {
  const columns = `j.id, j.tree_id, j.type, coalesce(j.waiting_since, 'infinity') as since, j.waiting_since, j.open_children,
      j.assignee_id, j.ephemeral, j.archived_at, j.failing_child_id`
  return `
  page as materialized (
    select * from (
      (select ${columns} from ${t.job} j
       where j.state = 'waiting' and (j.waiting_since, j.id) > ($1::timestamptz, $2::uuid)
       order by j.waiting_since, j.id limit $3)
      union all
      (select ${columns} from ${t.job} j
       where j.state = 'waiting' and j.waiting_since is null and ($1::timestamptz <> 'infinity' or j.id > $2::uuid)
       order by j.waiting_since, j.id limit $3)
    ) next
    order by since, id limit $3
  )`
}

/** Whether the row `c` is an open member of the parent whose id is given, as SQL. Answered by job_open_children. */
export function isOpenChildOf(parentId: string): string {
  return `c.parent_id = ${parentId} and c.archived_at is null and c.state in ('queued', 'running', 'waiting', 'paused')`
}
