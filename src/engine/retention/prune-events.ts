import type { Database } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import { transaction } from '../../db/transaction.ts'
import { epochSql } from '../feed/statements.ts'

/*
 * Events go by the xid of their transaction. Each minute leaves a mark: the xmin of that instant, below which every
 * transaction had ended. Events below the mark of `keep` ago are deleted, and that xmin becomes the floor of the feed in
 * the same transaction: a cursor with a lower one has expired. A cursor that was made after the mark has no lower one, so
 * each lives for `keep` at least. An open transaction holds xmin, and so the deletion of what is above it.
 */

/** What the log may lose. */
export interface Mark {
  /** Events below this xid were committed before the mark. */
  floor: string
  /** How long a transaction had been open when the mark was made, in seconds: so much more is kept. */
  heldSeconds: number
}

/** Leaves the mark of this minute. */
export async function leaveMark(db: Database): Promise<void> {
  await db.query(insertMark)
}

/**
 * The mark of `keepMs` ago, and before that the present one with nothing to delete. Null where none counts: a database
 * that has no epoch yet may be a restored one, whose marks are of another.
 */
export async function markOf(db: Database, keepMs: number): Promise<(Mark & { due: boolean }) | null> {
  const [row] = await db.query(findMark, [keepMs])
  return row ? { floor: row.floor, heldSeconds: row.held, due: row.due } : null
}

/**
 * Deletes up to `limit` events below a mark, and raises the floor to it.
 *
 * @param from where the last batch ended; '0' at first.
 * @returns how many, and where this one ended.
 */
export async function pruneEvents(
  db: Database,
  { floor, from, limit }: { floor: string; from: string; limit: number },
): Promise<{ deleted: number; last: string }> {
  return transaction(db, async (tx) => {
    await tx.query(raiseFloor, [floor])
    const [row] = await tx.query(deleteEvents, [from, floor, limit])
    return { deleted: row!.deleted, last: row!.last ?? from }
  })
}

/** Forgets marks that a later one has made useless. */
export async function forgetMarks(db: Database, keepMs: number): Promise<void> {
  await db.query(deleteMarks, [keepMs])
}

// The oldest of all databases of the server: snapshots know them all.
const insertMark = statement(
  'retention.mark',
  (t) => `
  insert into ${t.feedMark} (floor, open_since)
  select pg_snapshot_xmin(pg_current_snapshot()), least(clock_timestamp(), min(since)) from (
    select xact_start as since from pg_stat_activity where backend_xid is not null and pid <> pg_backend_pid()
    union all
    select prepared from pg_prepared_xacts) open`,
)

// now(): what changes within a statement cannot be looked up in an index.
const findMark = statement<{ floor: string; held: number; due: boolean }>(
  'retention.find-mark',
  (t) => `
  select mark.floor, extract(epoch from mark.at - mark.open_since)::float8 as held, mark.due from (
    (select *, true as due from ${t.feedMark}
      where at <= now() - $1 * interval '1 millisecond' order by at desc limit 1)
    union all
    (select *, false from ${t.feedMark} order by at desc limit 1)
    order by due desc limit 1) mark
  where mark.floor <= pg_snapshot_xmin(pg_current_snapshot()) and exists (${epochSql(t)})`,
)

const deleteMarks = statement(
  'retention.forget-marks',
  (t) => `
  delete from ${t.feedMark} where at < (
    select at from ${t.feedMark} where at <= now() - $1 * interval '1 millisecond' order by at desc limit 1)`,
)

const raiseFloor = statement(
  'retention.raise-floor',
  (t) => `update ${t.feedFloor} set floor = $1::text::xid8 where floor < $1::text::xid8`,
)

// In the order of the index job_event_feed, each batch from where the last one ended: what it has deleted is still there
// for the index to skip.
const deleteEvents = statement<{ deleted: number; last: string | null }>(
  'retention.delete-events',
  (t) => `
  with old as materialized (
    select id, xid from ${t.jobEvent} where xid >= $1::text::xid8 and xid < $2::text::xid8 order by xid, id limit $3),
  gone as (delete from ${t.jobEvent} where id = any(array(select id from old)) returning xid)
  select count(*)::int as deleted, max(xid::text::numeric)::text as last from gone`,
)
