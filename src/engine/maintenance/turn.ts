import type { Database } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import type { Json } from '../job.ts'

/*
 * One process at a time runs a handler: the one that holds its row in `maintenance`.
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
  /** What the handler last remembered. */
  readonly state: Json
  /** Keeps a state for the next turn, if this one is not over. */
  remember(state: Json): Promise<void>
  /** Puts the end off; false: another process has taken over. */
  extend(): Promise<boolean>
  /** Gives the turn back, with what went wrong if anything did. */
  end(error: string | null): Promise<void>
}

/** What a turn is asked for with. */
export interface TurnRequest {
  /**
   * A UUID of the one who asks, who has one turn at a time: a row that it holds still is of a turn whose end the database
   * did not get to know, or whose beginning this side did not, and is given anew.
   */
  holder: string
  /** How long it holds, unless it is extended. */
  turnMs: number
  /** Time since the end of the last run, wherever that was, before which it is not given. */
  gapMs: number
}

/** Takes a handler's turn, if nobody else has it and it is due. */
export async function takeTurn(db: Database, name: string, request: TurnRequest): Promise<Turn | null> {
  const { holder, turnMs, gapMs } = request
  const parameters = [name, holder, turnMs, gapMs]
  let taken = await db.query(take, parameters)
  if (taken.length === 0 && (await db.query(makeRow, [name])).length > 0) taken = await db.query(take, parameters)
  const [row] = taken
  if (!row) return null
  return {
    state: row.state,
    remember: async (state) => {
      await db.query(remember, [name, holder, JSON.stringify(state)])
    },
    extend: async () => (await db.query(extend, [name, holder, turnMs])).length > 0,
    end: async (error) => {
      await db.query(end, [name, holder, error])
    },
  }
}

const makeRow = statement<{ name: string }>(
  'maintenance.make-row',
  (t) => `insert into ${t.maintenance} (name) values ($1) on conflict (name) do nothing returning name`,
)

const take = statement<{ state: Json }>(
  'maintenance.take-turn',
  (t) => `
  update ${t.maintenance}
  set held_by = $2, held_until = clock_timestamp() + $3 * interval '1 millisecond', started_at = clock_timestamp()
  where name = $1
    and (held_by is null or held_by = $2 or held_until < clock_timestamp()
      or held_until > clock_timestamp() + ${MAX_TURN_MS} * interval '1 millisecond')
    and (finished_at is null or finished_at > clock_timestamp()
      or finished_at <= clock_timestamp() - $4 * interval '1 millisecond')
  returning state`,
)

const remember = statement(
  'maintenance.remember',
  (t) => `update ${t.maintenance} set state = $3::jsonb where name = $1 and held_by = $2`,
)

const extend = statement<{ name: string }>(
  'maintenance.extend-turn',
  (t) => `
  update ${t.maintenance} set held_until = clock_timestamp() + $3 * interval '1 millisecond'
  where name = $1 and held_by = $2 returning name`,
)

const end = statement(
  'maintenance.end-turn',
  (t) => `
  update ${t.maintenance}
  set held_by = null, held_until = null, finished_at = clock_timestamp(), took = clock_timestamp() - started_at, error = $3
  where name = $1 and held_by = $2`,
)
