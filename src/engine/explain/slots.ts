import { statement } from '../../db/statement.ts'
import type { Tx } from '../../db/transaction.ts'
import { MAX_COUNTED } from './subjects.ts'

/** What runs under one concurrency key. */
export interface Slots {
  /** At most {@link MAX_COUNTED}. */
  running: number
  /** The first five, longest first. */
  holders: { id: string; workerId: string | null; host: string | null; claimedAt: Date }[]
}

interface Row {
  type: string
  key: string
  running: number
  id: string
  worker_id: string | null
  host: string | null
  claimed_at: Date
}

/** Name of a key of a type, for {@link findSlots}. */
export function slotName(type: string, key: string): string {
  return JSON.stringify([type, key])
}

/** What runs under each of these keys of types, by {@link slotName}; absent where nothing does. */
export async function findSlots(
  tx: Tx,
  keys: readonly { type: string; concurrency_key: string | null }[],
): Promise<Map<string, Slots>> {
  const wanted = new Map(
    keys.flatMap(({ type, concurrency_key: key }) =>
      key === null ? [] : [[slotName(type, key), { type, key }] as const],
    ),
  )
  if (wanted.size === 0) return new Map()
  const given = [...wanted.values()]
  const rows: Row[] = await tx.query(slots, [given.map(({ type }) => type), given.map(({ key }) => key)])
  const found = new Map<string, Slots>()
  for (const row of rows) {
    const name = slotName(row.type, row.key)
    const one = found.get(name) ?? { running: row.running, holders: [] }
    one.holders.push({ id: row.id, workerId: row.worker_id, host: row.host, claimedAt: row.claimed_at })
    found.set(name, one)
  }
  return found
}

const slots = statement<Row>(
  'explain.slots',
  (t) => `
  select wanted.type, wanted.key, holder.running::int, holder.id, holder.worker_id, w.host, holder.claimed_at
  from unnest($1::text[], $2::text[]) with ordinality wanted(type, key, number)
  cross join lateral (
    select j.id, j.worker_id, j.claimed_at, count(*) over () as running from (
      select j.id, j.worker_id, j.claimed_at from ${t.job} j
      where j.state = 'running' and j.type = wanted.type and j.concurrency_key = wanted.key
      limit ${MAX_COUNTED}) j
    order by j.claimed_at, j.id limit 5) holder
  left join lateral (select w.host from ${t.worker} w where w.id = holder.worker_id limit 1) w on true
  order by wanted.number, holder.claimed_at, holder.id`,
)
