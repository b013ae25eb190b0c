import type { Database } from '../../db/database.ts'
import type { Statement } from '../../db/statement.ts'
import { CursorExpiredError, UnavailableError } from '../errors.ts'
import type { FeedCursor } from './cursor.ts'
import { renewEpoch } from './epoch.ts'
import type { JobEvent } from './event.ts'
import { type EventMatcher, eventMatcher } from './filter.ts'
import { formatSnapshot, parseSnapshot, type Snapshot } from './snapshot.ts'
import { type LogRow, type PageRow, type PresentRow, readPresent, readRest, readWindow } from './statements.ts'

/** What a read is to bring; all optional. */
export interface ReadOptions {
  filter?: EventMatcher
  /** Most events to return; default 100. */
  first?: number
  /** Most events to look at, matching or not; default `first`. */
  scan?: number
  /** Where a new window ends: a snapshot that shows all that the cursor's does. Default: now. */
  upTo?: Snapshot
  /** When to give up, in milliseconds; default 60,000: the first read from a very old cursor takes a while. */
  deadlineMs?: number
}

/** What a read has brought. */
export interface ReadBatch {
  /** In order of id, which is the order of each job. */
  events: JobEvent[]
  /** Where to go on. */
  cursor: FeedCursor
  /** The window is read to its end. */
  caughtUp: boolean
  /** Snapshots at both ends of the window. */
  from: Snapshot
  to: Snapshot
  /** Size of the events as JSON text. */
  size: number
}

/** The end of the log. */
export interface Present {
  cursor: FeedCursor
  /** Highest event id so far. */
  lastId: number
}

/** Reads the log of one database, each time in one statement. */
export interface FeedReader {
  /**
   * The events after a cursor, or none and the end of the log if it is null.
   *
   * @throws {CursorExpiredError} when some of them may be gone.
   * @throws {UnavailableError} when the database does not answer.
   */
  readBatch(cursor: FeedCursor | null, options?: ReadOptions): Promise<ReadBatch>
  /** The end of the log: what is committed later comes after it. */
  present(): Promise<Present>
  /** Before the oldest event that is kept. */
  oldest(): Promise<FeedCursor>
  /** The epoch that the last read has found; undefined before the first. */
  readonly epoch: string | undefined
}

/** A read that has no answer by then has lost its connection. */
const DEADLINE_MS = 15_000
const PAGE_DEADLINE_MS = 60_000
/** An epoch may be lost again right after it was written, by another crash. */
const MAX_RENEWALS = 5

/** Opens a reader. It holds nothing: each read takes a connection of the pool for one statement. */
export function createFeedReader(db: Database): FeedReader {
  let known: string | undefined

  /** Reads; where the database has no epoch, the answer is thrown away, an epoch written, and it is read again. */
  async function read<Row extends LogRow>(query: Statement<Row>, parameters: readonly unknown[], deadlineMs: number) {
    for (let renewals = 0; renewals <= MAX_RENEWALS; renewals++) {
      const [row] = await queryWithDeadline(db, query, parameters, deadlineMs)
      if (row === undefined) throw new UnavailableError('The event log gave no answer.')
      const { epoch } = row
      if (epoch !== null) {
        known = epoch
        return { ...row, epoch, ceiling: snapshotOf(row.ceiling) }
      }
      await renewEpoch(db)
    }
    throw new UnavailableError('The event log has no epoch: the database loses it again and again.')
  }

  async function present(): Promise<Present> {
    const row = await read<PresentRow>(readPresent, [], DEADLINE_MS)
    return { cursor: { epoch: row.epoch, from: row.ceiling }, lastId: Number(row.last_id) }
  }

  async function oldest(): Promise<FeedCursor> {
    const row = await read<PresentRow>(readPresent, [], DEADLINE_MS)
    const floor = BigInt(row.floor)
    // Inside a window already: its pages go by primary key, so that the first one is cheap however long the log.
    return {
      epoch: row.epoch,
      from: { xmin: floor, xmax: floor, xip: [] },
      window: { to: row.ceiling, lastId: '0' },
    }
  }

  async function readBatch(cursor: FeedCursor | null, options: ReadOptions = {}): Promise<ReadBatch> {
    if (cursor === null) {
      const { cursor: end } = await present()
      return { events: [], cursor: end, caughtUp: true, from: end.from, to: end.from, size: 0 }
    }
    const { filter = MATCH_ALL, first = 100, scan = first, upTo, deadlineMs = PAGE_DEADLINE_MS } = options
    const { epoch, from, window } = cursor
    const to = window?.to ?? upTo
    const parameters = [
      formatSnapshot(from),
      to === undefined ? null : formatSnapshot(to),
      epoch,
      scan,
      first,
      ...filter.parameters,
    ]
    const row = await (window === undefined
      ? read<PageRow>(readWindow, [...parameters, from.xip.map(String)], deadlineMs)
      : read<PageRow>(readRest, [...parameters, window.lastId], deadlineMs))
    assertAlive(cursor, row)

    const events = eventsOf(row.events)
    const end = row.ceiling
    // The page ends with the last event looked at, unless there may be another match before that.
    const last = events.length === first ? events.at(-1)!.id : row.last_scanned
    const caughtUp = row.scanned < scan && (last === null || events.length < first || last === row.last_scanned)
    return {
      events,
      cursor: caughtUp ? { epoch, from: end } : { epoch, from, window: { to: end, lastId: last! } },
      caughtUp,
      from,
      to: end,
      size: row.events.length,
    }
  }

  return {
    readBatch,
    present,
    oldest,
    get epoch() {
      return known
    },
  }
}

const MATCH_ALL = eventMatcher()

function assertAlive({ epoch, from, window }: FeedCursor, row: { epoch: string; floor: string; horizon: string }) {
  if (epoch !== row.epoch) {
    throw new CursorExpiredError('The cursor is from before a crash, failover or restore of the database: read afresh.')
  }
  if (from.xmin < BigInt(row.floor)) {
    throw new CursorExpiredError('The cursor is older than what the event log keeps: read afresh.')
  }
  // This is an older copy of the database, its epoch along with it.
  const horizon = BigInt(row.horizon)
  if (from.xmax > horizon || (window !== undefined && window.to.xmax > horizon)) {
    throw new CursorExpiredError('The cursor is ahead of this database: read afresh.')
  }
}

function eventsOf(json: string): JobEvent[] {
  const events: JobEvent[] = JSON.parse(json)
  for (const event of events) event.at = new Date(event.at)
  return events
}

function snapshotOf(text: string): Snapshot {
  const snapshot = parseSnapshot(text)
  if (snapshot === undefined) throw new TypeError(`Not a snapshot: ${text}`)
  return snapshot
}

async function queryWithDeadline<Row>(
  db: Database,
  query: Statement<Row>,
  values: readonly unknown[],
  deadlineMs: number,
): Promise<Row[]> {
  const client = await db.pool.connect()
  try {
    const config = { text: db.text(query), values: values as unknown[], query_timeout: deadlineMs }
    const { rows } = await client.query(config)
    client.release()
    return rows as Row[]
  } catch (error) {
    // Whatever it was, the connection may still be waiting for an answer.
    client.release(true)
    if (error instanceof Error && error.message === 'Query read timeout') {
      throw new UnavailableError(`The database has not answered for ${deadlineMs} ms.`, { cause: error })
    }
    throw error
  }
}
