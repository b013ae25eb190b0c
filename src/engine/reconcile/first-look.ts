import { statement } from '../../db/statement.ts'

/** What decides whether a tick has anything to do. */
export interface FirstLook {
  /** The database's clock, in ms. */
  now: number
  /** Some parent waits. */
  waiting: boolean
  /** How long the oldest of them has waited, in seconds; 0 if none does, or since when is not known. */
  oldest: number
  /** Plain SQL has left marks. */
  marked: boolean
}

// Ordered, so that each is one probe of an index whatever the planner believes of how many rows there are.
export const firstLook = statement<FirstLook>(
  'reconcile.first-look',
  (t) => `
  select extract(epoch from clock_timestamp())::float8 * 1000 as now,
    oldest.id is not null as waiting,
    case when isfinite(oldest.waiting_since)
      then greatest(extract(epoch from clock_timestamp() - oldest.waiting_since), 0) else 0 end::float8 as oldest,
    (select id from ${t.wakeMark} order by id limit 1) is not null as marked
  from (select) one
  left join (
    select j.id, j.waiting_since from ${t.job} j where j.state = 'waiting' order by j.waiting_since, j.id limit 1
  ) oldest on true`,
  { prepared: true },
)
