import { statement } from '../../db/statement.ts'
import type { Tx } from '../../db/transaction.ts'
import { READY } from './claim-sql.ts'

/** Most keys that one claim looks at, blocked ones included, and most that it takes the locks of. */
const MAX_LOOKED = 1000
const MAX_OPEN = 100

/** A key whose lock this transaction holds, and that was seen to have slots free. */
export interface HeldKey {
  type: string
  key: string
  /** Its type's limit. */
  slots: number
}

/** Where the walk over the keys stands: at a key, or (null) before the first one of the type with this number. */
export interface KeyPosition {
  /** 1 for the first type. */
  ordinal: number
  key: string | null
}

/** What one look at the keys came to. */
export interface KeyPage {
  held: HeldKey[]
  /** Where the next look goes on; null: this one came to the end. */
  next: KeyPosition | null
  /** Whether somebody else held the lock of a key with free slots: he may leave some of its jobs. */
  contended: boolean
}

/**
 * Looks at the keys that have queued jobs, from `position` on in order of type and key, and takes the locks of those that
 * have slots free. Locks are tried, never waited for, and held to the end of the transaction. Whoever holds one is the
 * only one that claims jobs of that key; how many of them run he has to count in a later statement.
 */
export async function lockKeys(
  tx: Tx,
  limits: readonly (readonly [type: string, slots: number])[],
  position: KeyPosition,
): Promise<KeyPage> {
  const rows = await tx.query(openKeys, [
    limits.map(([type]) => type),
    limits.map(([, slots]) => slots),
    position.ordinal,
    position.key,
    (tx.db.lockSpace + 1) | 0,
  ])
  const last = rows.find((row) => row.last)
  const open = rows.filter((row) => row.locked !== null)
  return {
    held: open.filter((row) => row.locked).map(({ type, key, slots }) => ({ type, key: key!, slots })),
    next: last?.cut ? { ordinal: last.ordinal, key: last.key } : null,
    contended: open.some((row) => !row.locked),
  }
}

interface KeyRow {
  ordinal: number
  type: string
  key: string | null
  slots: number
  /** Null: not tried, for its slots are taken. */
  locked: boolean | null
  /** The last one looked at; and whether there may be others. */
  last: boolean
  cut: boolean
}

// A step goes to the next key of the type by one index probe, however many jobs the present key has; or, after the last
// one, to the next type, with no key yet. Slots are counted to keep from locking keys that are taken anyway: what counts
// is what the claim itself counts, under the lock. The lock's space is the one beside the tree locks'.
const openKeys = statement<KeyRow>(
  'claim.open-keys',
  (t) => `
  with recursive limited as materialized (
    select * from unnest($1::text[], $2::int[]) with ordinality l(type, slots, ordinal)
  ),
  step(ordinal, key, looked, is_open, opened) as (
    select $3::bigint, $4::text, 0, false, 0
    union all
    select next.ordinal, next.key, s.looked + 1, slot.is_open, s.opened + slot.is_open::int
    from step s
    cross join lateral (
      (select l.ordinal, following.key, l.type, l.slots from limited l
       cross join lateral (
         select j.concurrency_key as key from ${t.job} j
         where ${READY} and j.type = l.type and j.concurrency_key > s.key
         order by j.concurrency_key limit 1) following
       where s.key is not null and l.ordinal = s.ordinal)
      union all
      (select l.ordinal, first.key, l.type, l.slots from limited l
       cross join lateral (
         select j.concurrency_key as key from ${t.job} j
         where ${READY} and j.type = l.type and j.concurrency_key is not null
         order by j.concurrency_key limit 1) first
       where s.key is null and l.ordinal = s.ordinal)
      union all
      (select l.ordinal, null, l.type, l.slots from limited l where l.ordinal = s.ordinal + 1)
      limit 1) next
    cross join lateral (
      select next.key is not null and count(*) < next.slots as is_open
      from (
        select from ${t.job} j
        where j.state = 'running' and j.type = next.type and j.concurrency_key = next.key
        limit next.slots) running) slot
    where s.looked < ${MAX_LOOKED} and s.opened < ${MAX_OPEN}
  ),
  last as materialized (
    select looked, looked = ${MAX_LOOKED} or opened = ${MAX_OPEN} as cut from step order by looked desc limit 1
  )
  select s.ordinal::int, l.type, s.key, l.slots, s.looked = last.looked as last, last.cut,
    case when s.is_open then pg_try_advisory_xact_lock($5::int, hashtext(l.type || chr(1) || s.key)) end as locked
  from step s cross join last join limited l on l.ordinal = s.ordinal
  where s.is_open or s.looked = last.looked`,
  { prepared: true },
)
