import type { Logger } from 'pino'
import type { Database } from '../../db/database.ts'
import { InvalidCursorError, UnavailableError, ValidationError } from '../errors.ts'
import type { FeedBatch } from './batch.ts'
import { decodeCursor, encodeCursor } from './cursor.ts'
import type { Doorbell } from './doorbell.ts'
import type { JobEvent } from './event.ts'
import { eventMatcher, type JobEventFilter } from './filter.ts'
import { createFeedReader } from './reader.ts'
import { createSlots } from './slots.ts'
import { parseSnapshot } from './snapshot.ts'
import { readOldestTransaction } from './statements.ts'
import { type DeliveryLimits, Subscriber, type SubscriberContext } from './subscriber.ts'
import { createTail } from './tail.ts'
import { createTurns } from './turns.ts'

export type { FeedBatch, FeedEnd } from './batch.ts'

/** Which events to subscribe to, and from where. */
export interface SubscribeOptions {
  filter?: JobEventFilter | null | undefined
  /** Cursor to go on from; from now on if absent. */
  after?: string | null | undefined
  /** Ends the subscription as `return()` does. */
  signal?: AbortSignal | undefined
}

/** Which events to pull, and from where. */
export interface ReadFeedOptions {
  filter?: JobEventFilter | null | undefined
  /** Cursor to go on from; from the oldest event that is kept if absent. */
  after?: string | null | undefined
  /** At most this many, 1 to 100; default 20. */
  first?: number | null | undefined
}

/** The feed of one process in numbers. */
export interface FeedStats {
  /** Rings of other processes arrive; false is polling. */
  listening: boolean
  /** Times that LISTEN came into force again. */
  reconnects: number
  /** For how long something has been there to read, in milliseconds. */
  lagMs: number
  subscribers: number
  /** Times that a subscriber had to read the table because it fell behind the shared frames. */
  ringMisses: number
}

/** The event log as a stream. */
export interface Feed {
  /**
   * Begins to follow the doorbell.
   *
   * @throws an error of the connection when the database cannot be reached.
   */
  start(): Promise<void>
  /** Every subscriber gets a last batch, `ended: 'shutdown'`. */
  stop(): Promise<void>
  /**
   * Every event that matches, once, in order per job. The first batch comes at once, empty or not, and says that the
   * subscription has begun: what is committed from then on arrives. Leave the loop, or call `return()`, to unsubscribe.
   *
   * @throws {InvalidCursorError} {@link ValidationError} at once, when `after` is no cursor or an id no id.
   */
  subscribe(options?: SubscribeOptions): AsyncIterableIterator<FeedBatch, undefined>
  /**
   * The same, pulled. A batch may hold fewer events than asked for, or none, and yet not be caught up: then go on.
   *
   * @throws {CursorExpiredError} when some of the events may be gone.
   * @throws {InvalidCursorError} {@link ValidationError} for what is no cursor, no id, no size of a page.
   */
  read(options?: ReadFeedOptions): Promise<FeedBatch>
  /**
   * The cursor of a `pg_current_snapshot()` of this database: what follows it is what the snapshot did not show.
   *
   * @throws {UnavailableError} before the first read of the log: start the feed first.
   * @throws {InvalidCursorError} when it is no snapshot.
   */
  cursorAt(snapshot: string): string
  stats(): FeedStats
  /** Age in milliseconds of the oldest transaction whose events may yet come; null when none is open. */
  heldUpBy(): Promise<number | null>
}

/** What a feed needs. */
export interface FeedOptions {
  db: Database
  doorbell: Doorbell
  logger: Logger
  /** Longest time until a lost ring is made good, in milliseconds; default 2,000. */
  pollMs?: number
  /** Most events in a batch, at most 100, the default. */
  maxBatch?: number
  /** Least time between batches that are not full, in milliseconds; default 25. */
  paceMs?: number
  /** Longest time without a batch, in milliseconds; default 30,000. */
  beatMs?: number
  /** Events that go by while a consumer does not ask for more, before it is ended; default 100,000. */
  maxBehind?: number
  /** Events kept for subscribers that are a little behind; default 10,000. */
  bufferEvents?: number
}

const MAX_PAGE = 100
/** Text of the events kept, whatever their number. */
const BUFFER_SIZE = 16 * 1024 * 1024
/** Subscribers that read the table at the same time. */
const TABLE_READS = 3
/** Events that a pull looks at to find some that match: in its first read, in each later one, and how many there are. */
const PULL_SCAN_FIRST = 500
const PULL_SCAN = 10_000
const PULL_READS = 10

/** Makes the feed of one process. */
export function createFeed(options: FeedOptions): Feed {
  const { db, doorbell, logger, pollMs = 2_000 } = options
  const limits: DeliveryLimits = {
    batch: Math.min(options.maxBatch ?? MAX_PAGE, MAX_PAGE),
    pace: options.paceMs ?? 25,
    beat: options.beatMs ?? 30_000,
    behind: options.maxBehind ?? 100_000,
  }
  const reader = createFeedReader(db)
  const subscribers = new Set<Subscriber>()
  const turns = createTurns<Subscriber>((subscriber) => subscriber.serve())
  let ringMisses = 0
  let stopped = false
  let unlisten: (() => void) | undefined

  const tail = createTail({
    reader,
    logger,
    pollMs,
    buffer: { events: options.bufferEvents ?? 10_000, size: BUFFER_SIZE },
    onAdvance(events, before) {
      for (const subscriber of subscribers) subscriber.advanced(events, before)
    },
    onExpired() {
      for (const subscriber of subscribers) subscriber.expired()
    },
    onFailure(error) {
      for (const subscriber of subscribers) subscriber.failed(error)
    },
  })

  const context: SubscriberContext = {
    tail,
    reader,
    slots: createSlots(TABLE_READS),
    limits,
    requestTurn: (subscriber) => turns.add(subscriber),
    missed() {
      ringMisses++
    },
    closed(subscriber) {
      turns.delete(subscriber)
      subscribers.delete(subscriber)
      if (subscribers.size === 0) tail.stop()
    },
  }

  function subscribe({ filter, after, signal }: SubscribeOptions = {}) {
    const cursor = after == null ? undefined : decodeCursor(after)
    const subscriber = new Subscriber(context, eventMatcher(filter ?? {}), cursor, signal)
    if (signal?.aborted === true) subscriber.subscription.end()
    else if (stopped) subscriber.end('shutdown')
    else {
      subscribers.add(subscriber)
      tail.start()
      tail.wake()
    }
    return subscriber.subscription
  }

  async function read({ filter, after, first }: ReadFeedOptions = {}): Promise<FeedBatch> {
    const size = first ?? 20
    if (!Number.isInteger(size) || size < 1 || size > MAX_PAGE) {
      throw ValidationError.of('first', `must be 1 to ${MAX_PAGE}, not ${size}`)
    }
    const matcher = eventMatcher(filter ?? {})
    let cursor = after == null ? await reader.oldest() : decodeCursor(after)
    const events: JobEvent[] = []
    for (let reads = 1; ; reads++) {
      const scan = reads === 1 ? PULL_SCAN_FIRST : PULL_SCAN
      const batch = await reader.readBatch(cursor, { filter: matcher, first: size - events.length, scan })
      cursor = batch.cursor
      events.push(...batch.events)
      if (events.length === size || batch.caughtUp || reads === PULL_READS) {
        return { events, cursor: encodeCursor(cursor), caughtUp: batch.caughtUp, ended: null }
      }
    }
  }

  function cursorAt(text: string): string {
    const from = parseSnapshot(text)
    if (from === undefined) throw new InvalidCursorError(`Not a snapshot: ${JSON.stringify(text)}.`)
    if (reader.epoch === undefined) throw new UnavailableError('The event log has not been read yet.')
    return encodeCursor({ epoch: reader.epoch, from })
  }

  return {
    subscribe,
    read,
    cursorAt,
    async start() {
      if (stopped || unlisten !== undefined) return
      unlisten = doorbell.onRing(() => tail.wake())
      await reader.present()
    },
    async stop() {
      stopped = true
      unlisten?.()
      for (const subscriber of [...subscribers]) subscriber.end('shutdown')
      await tail.idle()
      await context.slots.idle()
    },
    stats: () => ({
      listening: doorbell.listening,
      reconnects: doorbell.reconnects,
      lagMs: tail.lag,
      subscribers: subscribers.size,
      ringMisses,
    }),
    async heldUpBy() {
      const [row] = await db.query(readOldestTransaction)
      return row?.age ?? null
    },
  }
}
