import { statement, type TableNames } from '../../db/statement.ts'
import type { Tx } from '../../db/transaction.ts'
import { candidatesOfTypes, claimLocked, lockCandidate, mayRun, READY } from './claim-sql.ts'
import type { ClaimedJob } from './claimed-job.ts'
import type { HeldKey } from './limited-keys.ts'

/** Jobs of a key that are looked at beyond those wanted, where the first ones are in others' hands at this moment. */
const SPARE = 8

/** What is claimed from: types without a limit, and keys of types with one whose locks are held. */
export interface MixedClaim {
  workerId: string
  actor: string
  /** Types without a limit. */
  types: readonly string[]
  keys: readonly HeldKey[]
  queues: readonly string[] | null
  limit: number
}

/**
 * Claims the best jobs of both kinds of type together, so that a limit changes nothing in the order of queue, priority,
 * runAt, id. The locks of `keys` must be held, and taken in an earlier statement: only then does this one's snapshot see
 * every claim that was made under them before.
 */
export function claimMixed(tx: Tx, claim: MixedClaim): Promise<ClaimedJob[]> {
  const { workerId, actor, types, keys, queues, limit } = claim
  const parameters = [
    workerId,
    actor,
    types,
    limit,
    keys.map((held) => held.type),
    keys.map((held) => held.key),
    keys.map((held) => held.slots),
  ]
  return queues ? tx.query(mixedFromQueues, [...parameters, queues]) : tx.query(mixedFromAnyQueue, parameters)
}

/** Rows of `job_limited_ready`. That the key is not null is said aloud: from a row comparison it is not inferred. */
const READY_LIMITED = `${READY} and j.concurrency_key is not null`

const FIRST_ID = `'00000000-0000-0000-0000-000000000000'::uuid`
const LAST_ID = `'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid`
const LEAST_INT = `(-2147483648)`
const MOST_INT = `2147483647`

// The best jobs of one key, found like those of a type: by skipping from one (queue, priority) to the next. `of` is an
// alias with columns type and key. The key is compared as part of rows, and is part of the order, which only the index
// over keys can give. Equal to a constant it would drop out of the order, and then it would hang on the statistics whether
// the index over whole types is read instead, past the jobs of every other key.
function bestOfKey(t: TableNames, queues: string | null, of: string, count: string): string {
  const place = '(j.concurrency_key, j.queue, j.priority)'
  const byPlace = 'order by j.concurrency_key, j.queue, j.priority'
  const within = `${READY_LIMITED} and j.type = ${of}.type`
  const first =
    queues === null
      ? `
      (select j.queue, j.priority from ${t.job} j
       where ${within} and ${place} >= (${of}.key, '', ${LEAST_INT}) and j.concurrency_key <= ${of}.key
       ${byPlace} limit 1)`
      : `
      (select first.queue, first.priority from unnest(${queues}::text[]) served(queue)
       cross join lateral (
         select j.queue, j.priority from ${t.job} j
         where ${within} and ${place} >= (${of}.key, served.queue, ${LEAST_INT})
           and ${place} <= (${of}.key, served.queue, ${MOST_INT})
         ${byPlace} limit 1) first)`
  const end = queues === null ? `j.concurrency_key <= ${of}.key` : `${place} <= (${of}.key, place.queue, ${MOST_INT})`
  return `
    with recursive place(queue, priority) as (
      ${first}
      union all
      select next.queue, next.priority from place
      cross join lateral (
        select j.queue, j.priority from ${t.job} j
        where ${within} and ${place} > (${of}.key, place.queue, place.priority) and ${end}
        ${byPlace} limit 1) next
    )
    select best.* from place
    cross join lateral (
      select j.id, j.queue, j.priority, j.run_at from ${t.job} j
      where ${within}
        and (j.concurrency_key, j.queue, j.priority, j.run_at, j.id)
          >= (${of}.key, place.queue, place.priority, '-infinity', ${FIRST_ID})
        and (j.concurrency_key, j.queue, j.priority, j.run_at, j.id)
          <= (${of}.key, place.queue, place.priority, now(), ${LAST_ID})
        and ${mayRun(t)}
      order by j.concurrency_key, j.queue, j.priority, j.run_at, j.id limit ${count}) best
    order by best.queue, best.priority, best.run_at, best.id limit ${count}`
}

// Of each key no more than are free, of all together no more than $4. `share` is what each key gets of the best $4 jobs;
// where others hold one of them at this moment, the key's next one takes its place.
function mixedText(t: TableNames, queues: string | null): string {
  return `
  with recursive ${candidatesOfTypes(t, queues)},
  slot as materialized (
    select held.type, held.key, least(held.slots - busy.n, $4::int) as free
    from unnest($5::text[], $6::text[], $7::int[]) held(type, key, slots)
    cross join lateral (
      select count(*)::int as n from ${t.job} j
      where j.state = 'running' and j.type = held.type and j.concurrency_key = held.key) busy
    where busy.n < held.slots
  ),
  best as materialized (
    select every.* from (
      select null as type, null as key, c.* from candidate c
      union all
      select slot.type, slot.key, b.* from slot cross join lateral (${bestOfKey(t, queues, 'slot', 'slot.free')}) b
    ) every
    order by every.queue, every.priority, every.run_at, every.id limit $4
  ),
  share as materialized (
    select type, key, count(*)::int as n from best where key is not null group by type, key
  ),
  locked_limited as materialized (
    select of_key.place from share
    cross join lateral (
      select l.place from (${bestOfKey(t, queues, 'share', `(share.n + ${SPARE})`)}) c
      cross join lateral (${lockCandidate(t)}) l
      limit share.n) of_key
  ),
  locked_others as materialized (
    select l.place from candidate c cross join lateral (${lockCandidate(t)}) l
    limit $4 - (select count(*) from locked_limited)
  ),
  locked as (
    select place from locked_limited union all select place from locked_others
  ),
  ${claimLocked(t)}`
}

const mixedFromAnyQueue = statement<ClaimedJob>('claim.limited-any-queue', (t) => mixedText(t, null), {
  prepared: true,
})
const mixedFromQueues = statement<ClaimedJob>('claim.limited-queues', (t) => mixedText(t, '$8'), { prepared: true })
