import { statement, type TableNames } from '../../db/statement.ts'
import { filterSql } from './filter.ts'

/** What every read of the log tells along: with another epoch or a higher floor than the cursor's, nothing else counts. */
export interface LogRow {
  /** Null when there is none that fits this database: see `epoch.ts`. */
  epoch: string | null
  /** Events of transactions below this one may have been deleted. */
  floor: string
  /** A snapshot: that of the read itself unless a window was given. */
  ceiling: string
  /** Transactions from here on are not known to the database yet. */
  horizon: string
}

/** A page of the log. */
export interface PageRow extends LogRow {
  /** Events looked at, matching or not. */
  scanned: number
  /** The last of them. */
  last_scanned: string | null
  /** JSON text of the matching ones, in order of id. */
  events: string
}

/** The end of the log. */
export interface PresentRow extends LogRow {
  /** Highest id in the log, '0' when it is empty. */
  last_id: string
}

/**
 * The epoch's row counts only in the database that wrote it: a restored dump brings the row of another one along, and
 * its transaction ids mean nothing here.
 */
export const epochSql = (t: TableNames) => `
  select id from ${t.feedEpoch}
  where system_identifier = (select system_identifier from pg_control_system())
    and database_oid = (select oid from pg_database where datname = current_database())`

const logSql = (t: TableNames) => `
  select (${epochSql(t)}) as epoch, coalesce((select floor from ${t.feedFloor}), '3'::xid8) as floor,
    pg_snapshot_xmax(pg_current_snapshot()) as horizon`

const EVENT = `json_build_object('id', e.id::text, 'kind', e.kind, 'jobId', e.job_id, 'treeId', e.tree_id,
    'parentId', e.parent_id, 'type', e.type, 'from', e."from", 'to', e."to", 'phase', e.phase, 'wave', e.wave,
    'attempt', e.attempt, 'version', e.version, 'at', e.at, 'actor', e.actor, 'reason', e.reason, 'detail', e.detail)`

/*
 * Parameters of both pages: $1 snapshot that has been read, $2 snapshot to read up to, $3 epoch of the cursor, $4 most
 * events to look at, $5 most events to return, $6 to $11 the filter. An expired cursor reads nothing: "valid" is
 * evaluated once, before any scan. "page" holds the events looked at, "e" those of them that count.
 *
 * Both are written so that the planner takes the indexes, at a low estimate (no JIT), whatever it knows of the log: it
 * has no statistics after a crash or a restore, and misleading ones where most events are of few transactions. Left to
 * its guesses it reads the whole log each time (1,000,000 events: 110 ms, not 1).
 */
const pageSql = (t: TableNames, page: string, counts: string) => `
  with log as materialized (${logSql(t)}),
  valid as materialized (
    select coalesce(epoch = $3::uuid, false) and pg_snapshot_xmin($1::pg_snapshot) >= floor as ok from log),
  ${page},
  hit as (select e.* from ${counts} and ${filterSql(6)} order by e.id limit $5::int)
  select log.*, coalesce($2::pg_snapshot, pg_current_snapshot())::text as ceiling,
    (select count(*)::int from page) as scanned,
    (select max(id) from page) as last_scanned,
    (select coalesce(json_agg(${EVENT} order by e.id), '[]')::text from hit e) as events
  from log`

/**
 * The first page of a window: the events that $1 did not show and the statement's own snapshot shows (or $2, if given).
 * What is new lies above xmax or is of a transaction that was open then ($12, the list of $1): however long one stays
 * open, and however many events there are in between, only these are looked at. Of each open transaction a page is
 * enough. All conditions on xid are ranges bounded on both sides, which are guessed to be small: one bound is guessed to
 * be a third of the log, and an equality lets the planner walk the primary key instead. "limit 1" keeps the lookups of the
 * page's rows from becoming a hash join with the whole log.
 */
export const readWindow = statement<PageRow>('feed.window', (t) =>
  pageSql(
    t,
    `fresh as materialized (
      select id, xid from ${t.jobEvent}
        where xid >= pg_snapshot_xmax($1::pg_snapshot)
          and xid < pg_snapshot_xmax(coalesce($2::pg_snapshot, pg_current_snapshot())) and (select ok from valid)
      union all
      select late.id, late.xid from unnest($12::xid8[]) open,
        lateral (
          select id, xid from ${t.jobEvent} where xid >= open and xid <= open order by xid, id limit $4::int) late
        where (select ok from valid)),
    page as materialized (
      select id from fresh where $2::pg_snapshot is null or pg_visible_in_snapshot(xid, $2::pg_snapshot)
      order by id limit $4::int)`,
    `page, lateral (select * from ${t.jobEvent} where id = page.id limit 1) e where true`,
  ),
)

/**
 * A later page of a window: the same between $1 and $2, behind the event $12. Pages go along the primary key, so that
 * each costs the same however large the window, and are cut before it is looked whether their events are of the window.
 */
export const readRest = statement<PageRow>('feed.rest', (t) =>
  pageSql(
    t,
    `page as materialized (
      select * from ${t.jobEvent} where id > $12::bigint and (select ok from valid) order by id limit $4::int)`,
    `page e where not pg_visible_in_snapshot(e.xid, $1::pg_snapshot) and pg_visible_in_snapshot(e.xid, $2::pg_snapshot)`,
  ),
)

/** Where the log ends now. */
export const readPresent = statement<PresentRow>(
  'feed.present',
  (t) => `
  select log.*, pg_current_snapshot()::text as ceiling,
    coalesce((select max(id) from ${t.jobEvent}), 0)::text as last_id
  from (${logSql(t)}) log`,
)

/** Age in milliseconds of the oldest transaction that may yet write to the log; null when none is open. */
export const readOldestTransaction = statement<{ age: number | null }>(
  'feed.oldest-transaction',
  () => `
  select (extract(epoch from clock_timestamp() - min(since)) * 1000)::float8 as age from (
    select xact_start as since from pg_stat_activity
      where backend_xid is not null and datname = current_database() and pid <> pg_backend_pid()
    union all
    select prepared from pg_prepared_xacts where database = current_database()) open`,
)
