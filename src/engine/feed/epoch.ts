import type { Database } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import { transaction } from '../../db/transaction.ts'
import { epochSql } from './statements.ts'

/*
 * The epoch says in which life of the database a cursor was made. Its row is UNLOGGED: a crash, a failover and a restore
 * from a base backup leave none; that of a restored dump is of another database. In each of these cases transaction ids
 * may be used again for other transactions, so that snapshots of before prove nothing: a new epoch makes every older
 * cursor expire.
 */

/** Second key of the advisory lock; those of the trees are below 128. */
const EPOCH_LOCK = 1_000
/** Renumbering the events of a large restored dump takes a while. */
const TIMEOUT_MS = 600_000

const lockEpoch = statement('feed.lock-epoch', () => 'select pg_advisory_xact_lock($1, $2)')

const findEpoch = statement<{ id: string }>('feed.find-epoch', epochSql)

/**
 * Events that are here although their transactions have not yet ended in this database come from a dump. They get the
 * lowest xid, which every snapshot shows, lest they be told again when this database reaches their numbers.
 */
const settleRestored = statement<{ restored: number }>(
  'feed.settle-restored',
  (t) => `
  with settled as (
    update ${t.jobEvent} set xid = '3'
    where xid >= pg_snapshot_xmin(pg_current_snapshot()) and not pg_visible_in_snapshot(xid, pg_current_snapshot())
    returning 1)
  select count(*)::int as restored from settled`,
)

/** A floor of another database is none here; and no cursor is left that it could protect. */
const lowerFloor = statement(
  'feed.lower-floor',
  (t) => `
  update ${t.feedFloor} set floor = '3'
  where $1::boolean or floor > pg_snapshot_xmin(pg_current_snapshot())`,
)

/** Nor is a mark of another database one here: see `retention/prune-events.ts`. */
const forgetMarks = statement(
  'feed.forget-marks',
  (t) => `delete from ${t.feedMark} where $1::boolean or floor > pg_snapshot_xmin(pg_current_snapshot())`,
)

const removeEpoch = statement('feed.remove-epoch', (t) => `delete from ${t.feedEpoch}`)

const writeEpoch = statement(
  'feed.write-epoch',
  (t) => `
  insert into ${t.feedEpoch} (id, system_identifier, database_oid)
  select gen_random_uuid(), system_identifier, (select oid from pg_database where datname = current_database())
  from pg_control_system()`,
)

/**
 * Writes a new epoch unless another process has by now. Lock order: the epoch's advisory lock, then rows of the log,
 * which nobody else updates.
 */
export async function renewEpoch(db: Database): Promise<void> {
  await transaction(
    db,
    async (tx) => {
      await tx.query(lockEpoch, [db.lockSpace, EPOCH_LOCK])
      if ((await tx.query(findEpoch)).length > 0) return
      const [{ restored } = { restored: 0 }] = await tx.query(settleRestored)
      await tx.query(lowerFloor, [restored > 0])
      await tx.query(forgetMarks, [restored > 0])
      await tx.query(removeEpoch)
      await tx.query(writeEpoch)
    },
    { statementTimeoutMs: TIMEOUT_MS },
  )
}
