import { statement } from '../../db/statement.ts'
import type { Tx } from '../../db/transaction.ts'
import { READY } from '../claim/claim-sql.ts'

/** Queued jobs that are looked at for all places in line together, and for one at least and at most. */
const MAX_LOOKED = 50_000
const LEAST_LOOKED = 20
const MOST_LOOKED = 1000

/** How many jobs are before one in its line, roughly. */
export interface PlaceInLine {
  /** Jobs of its type and queue that are due and come first in order of priority, runAt, id. */
  before: number
  /** There were too many to look at all of them. */
  atLeast: boolean
}

/** The places of queued jobs in the lines of their types and queues; absent for a job that is not queued. */
export async function findPlaces(tx: Tx, ids: readonly string[]): Promise<Map<string, PlaceInLine>> {
  if (ids.length === 0) return new Map()
  const looked = Math.min(MOST_LOOKED, Math.max(LEAST_LOOKED, Math.floor(MAX_LOOKED / ids.length)))
  const rows = await tx.query(places, [ids, looked])
  return new Map(rows.map(({ id, before, atLeast }) => [id, { before, atLeast }]))
}

// By the primary key, whatever the statistics say of the indexes over queued jobs; then a range of the index that claims
// go by. Jobs that are not due yet lie among the others: they are looked at, not counted.
const places = statement<PlaceInLine & { id: string }>(
  'explain.places',
  (t) => `
  select s.id, line.before, line.looked = $2 as "atLeast"
  from unnest($1::uuid[]) s(id)
  cross join lateral (
    select j.* from (select * from ${t.job} j where j.id = s.id limit 1) j where ${READY}) own
  cross join lateral (
    select (count(*) filter (where first.run_at <= now()))::int as before, count(*)::int as looked from (
      select j.run_at from ${t.job} j
      where ${READY} and j.type = own.type and j.queue = own.queue
        and (j.priority, j.run_at, j.id) < (own.priority, own.run_at, own.id)
      limit $2) first) line`,
)
