import { randomUUID } from 'node:crypto'
import type { Database } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'

/*
 * One process at a time runs a handler: the one whose run its row in `maintenance` names.
 *
 * Why a row with an end, and no lock: a session's advisory lock does not hold through a transaction-mode pooler. A
 * transaction's does, but that transaction would stay open and idle for as long as the handler works elsewhere, so that
 * `idle_in_transaction_session_timeout` ends it after 10 s; kept awake by a timer it pins one of the pooler's
 * connections, and a handler that hangs keeps it for ever. A row costs one small update at either end of a run, frees
 * itself, sets one pace for all processes together, and shows what ran last and how that went.
 *
 * The clock is the database's. Setting it does no harm: a turn that ends further ahead than any turn may counts as over,
 * and a last run in the future as long past. A process frozen beyond the end of its turn may go on beside the next one
 * for a moment; handlers bear that, since each verb that they use is fenced by the state of the rows.
 */

/** Longest that a turn may be before it is extended, in ms. */
export const MAX_TURN_MS = 60_000

/** The right to run a handler, for now. */
export interface Turn {
  /** Puts the end off; false: another process has taken over. */
  extend(): Promise<boolean>
  /** Gives the turn back, with what went wrong if anything did. */
  end(error: string | null): Promise<void>
}

/** Takes a handler's turn for `turnMs`, if nobody has it and the last run ended at least `gapMs` ago. */
export async function takeTurn(
  db: Database,
  name: string,
  { turnMs, gapMs }: { turnMs: number; gapMs: number },
): Promise<Turn | null> {
  const runId = randomUUID()
  const parameters = [name, runId, turnMs, gapMs]
  let taken = await db.query(take, parameters)
  if (taken.length === 0 && (await db.query(makeRow, [name])).length > 0) taken = await db.query(take, parameters)
  if (taken.length === 0) return null
  return {
    extend: async () => (await db.query(extend, [name, runId, turnMs])).length > 0,
    end: async (error) => {
      await db.query(end, [name, runId, error])
    },
  }
}

const makeRow = statement<{ name: string }>(
  'maintenance.make-row',
  (t) => `insert into ${t.maintenance} (name) values ($1) on conflict (name) do nothing returning name`,
)

const take = statement<{ name: string }>(
  'maintenance.take-turn',
  (t) => `
  update ${t.maintenance}
  set run_id = $2, held_until = clock_timestamp() + $3 * interval '1 millisecond', started_at = clock_timestamp()
  where name = $1
    and (run_id is null or held_until < clock_timestamp()
      or held_until > clock_timestamp() + ${MAX_TURN_MS} * interval '1 millisecond')
    and (finished_at is null or finished_at > clock_timestamp()
      or finished_at <= clock_timestamp() - $4 * interval '1 millisecond')
  returning name`,
)

const extend = statement<{ name: string }>(
  'maintenance.extend-turn',
  (t) => `
  update ${t.maintenance} set held_until = clock_timestamp() + $3 * interval '1 millisecond'
  where name = $1 and run_id = $2 returning name`,
)

const end = statement(
  'maintenance.end-turn',
  (t) => `
  update ${t.maintenance} set run_id = null, held_until = null, finished_at = clock_timestamp(), error = $3
  where name = $1 and run_id = $2`,
)
