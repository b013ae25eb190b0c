import { type RawBuilder, sql } from 'kysely'
import type { Database, Queryable } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import type { JobEventTable } from '../../db/tables.ts'
import type { JobEvent } from '../feed/event.ts'
import type { Json } from '../job.ts'
import type { JobState, Phase } from '../states.ts'
import { decodeCursor, encodeCursor, isEventNumber, isInt } from './cursor.ts'
import { groupBy } from './group-by.ts'
import { type Page, type PageRequest, pageOf } from './page.ts'

/** The events that have these numbers, in no order; absent where there are none (any more). */
export async function eventsById(q: Queryable, ids: readonly string[]): Promise<JobEvent[]> {
  return (await q.query(findEvents, [ids])).map(eventFromRow)
}

const findEvents = statement<JobEventTable>(
  'reads.events-by-id',
  (t) => `select * from ${t.jobEvent} where id = any($1::bigint[])`,
)

/** One page of the events of each of several jobs, oldest first, in one statement: by job, absent where none are kept. */
export async function eventPages(
  db: Database,
  jobIds: readonly string[],
  page: PageRequest,
): Promise<Map<string, Page<JobEvent>>> {
  const conditions = [sql`e.job_id = job.id`, ...bound(page.after, '>'), ...bound(page.before, '<')]
  const direction = sql.raw(page.backwards ? 'desc' : 'asc')
  const { rows } = await sql<JobEventTable>`
    /* coppice:reads.event-pages */ select page.*
    from unnest(${jobIds}::uuid[]) with ordinality job(id, number)
    cross join lateral (
      select * from ${sql.raw(db.tables.jobEvent)} e where ${sql.join(conditions, sql` and `)}
      order by e.version ${direction}, e.id ${direction} limit ${page.size + 1}) page
    order by job.number, page.version ${direction}, page.id ${direction}
  `.execute(db.kysely)
  const edge = (row: JobEventTable) => ({
    cursor: encodeCursor('job-event', [row.version, String(row.id)]),
    node: eventFromRow(row),
  })
  return new Map([...groupBy(rows, (row) => row.job_id)].map(([id, events]) => [id, pageOf(events, page, edge)]))
}

// A job's events are in order of its version; the number decides between rows written by hand.
function bound(cursor: string | null, side: '<' | '>'): RawBuilder<unknown>[] {
  if (cursor === null) return []
  const [version, id] = decodeCursor('job-event', cursor, [isInt, isEventNumber])
  return [sql`(e.version, e.id) ${sql.raw(side)} (${version}::int, ${id}::bigint)`]
}

function eventFromRow(row: JobEventTable): JobEvent {
  return {
    id: String(row.id),
    kind: row.kind as JobEvent['kind'],
    jobId: row.job_id,
    treeId: row.tree_id,
    parentId: row.parent_id,
    type: row.type,
    from: row.from as JobState | null,
    to: row.to as JobState | null,
    phase: row.phase as Phase,
    wave: row.wave,
    attempt: row.attempt,
    version: row.version,
    at: row.at,
    actor: row.actor,
    reason: row.reason,
    detail: row.detail as Json,
  }
}
