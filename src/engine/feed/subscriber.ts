import { CursorExpiredError } from '../errors.ts'
import type { FeedEnd } from './batch.ts'
import { encodeCursor, type FeedCursor } from './cursor.ts'
import type { JobEvent } from './event.ts'
import type { EventMatcher } from './filter.ts'
import type { FeedReader } from './reader.ts'
import type { Slots } from './slots.ts'
import { covers } from './snapshot.ts'
import { Subscription } from './subscription.ts'
import type { Boundary, Tail } from './tail.ts'
import { isTransient } from './transient.ts'

/** What all subscribers of a feed share. */
export interface SubscriberContext {
  readonly tail: Tail
  readonly reader: FeedReader
  /** For reads of the table. */
  readonly slots: Slots
  readonly limits: DeliveryLimits
  /** Asks for a turn: {@link Subscriber.serve} is called soon. */
  requestTurn(subscriber: Subscriber): void
  /** It had to leave the shared frames for the table. */
  missed(): void
  closed(subscriber: Subscriber): void
}

export interface DeliveryLimits {
  /** Most events in a batch. */
  batch: number
  /** Least time between a batch and the next one that is not full, in milliseconds. */
  pace: number
  /** Longest time without a batch, in milliseconds. */
  beat: number
  /** A consumer that lets this many events go by while it does not ask for more is ended. */
  behind: number
}

/**
 * Where a subscriber is. It holds no events: only its cursor, and where that is among the shared frames.
 * - `present`: wants to begin now, and waits for the end of the log to be read.
 * - `frames`: in the shared frames; `offset` events of frame `seq` are behind it.
 * - `log`: reads the table: from an old cursor, or because it fell behind the frames. `target` is where the window that
 *   it reads ends, a place in the frames.
 */
type Place =
  | { at: 'present' }
  | { at: 'frames'; cursor: FeedCursor; seq: number; offset: number }
  | { at: 'log'; cursor: FeedCursor; target: Boundary | undefined }

/** Fewest and most events that a read of the table looks at to find some that match. */
const SCAN_MIN = 500
const SCAN_MAX = 10_000
const RETRY_MS = 1_000

/** One subscription as the hub sees it. Served in turns, whenever its consumer waits and there may be something. */
export class Subscriber {
  readonly subscription: Subscription
  readonly #context: SubscriberContext
  readonly #matcher: EventMatcher
  #place: Place
  /** A boundary of a later round than this one shows everything that was committed when it was set. */
  #round: number
  /** It has been at the end of the log. */
  #live = false
  /**
   * Highest event id that is behind it. Before it is live, the tail's when it last moved: then only standing still
   * counts, not how old its cursor is.
   */
  #lastId: number | undefined
  #opened = false
  #deliveredAt = 0
  #reading = false
  #scan = SCAN_MIN
  #timer: NodeJS.Timeout | undefined
  #due = Number.POSITIVE_INFINITY

  constructor(
    context: SubscriberContext,
    matcher: EventMatcher,
    after: FeedCursor | undefined,
    signal: AbortSignal | undefined,
  ) {
    this.#context = context
    this.#matcher = matcher
    this.#place = after === undefined ? { at: 'present' } : { at: 'log', cursor: after, target: undefined }
    this.#round = context.tail.round
    const leave = () => this.subscription.end()
    this.subscription = new Subscription({
      wanted: () => context.requestTurn(this),
      closed: () => {
        signal?.removeEventListener('abort', leave)
        clearTimeout(this.#timer)
        context.closed(this)
      },
    })
    signal?.addEventListener('abort', leave, { once: true })
  }

  /**
   * The tail has advanced, from the event `before` on. What has come just now is no fault of its consumer yet, however
   * much it is.
   */
  advanced(events: boolean, before: number): void {
    const { tail, limits } = this.#context
    this.#lastId ??= tail.lastId
    if (this.#place.at === 'present') this.#settle()
    if (this.subscription.parked) {
      if (events || !this.#opened || this.#place.at === 'log') this.#context.requestTurn(this)
    } else if (before - this.#lastId > limits.behind) {
      this.end('slow_consumer')
    }
  }

  /** What the tail had read may be followed by events that are lost. */
  expired(): void {
    if (this.#place.at === 'frames') this.end('cursor_expired')
  }

  /** The tail cannot read, and will not by itself. Who waits for a first batch is told; the others hold out. */
  failed(error: unknown): void {
    if (!this.#opened) this.subscription.fail(error)
  }

  /** Ends it with a last batch. Before it has a place there is nothing to tell. */
  end(ended: FeedEnd): void {
    const cursor = this.#place.at === 'present' ? undefined : this.#place.cursor
    this.subscription.end(cursor && { events: [], cursor: encodeCursor(cursor), caughtUp: false, ended })
  }

  /** Hands over what there is, if anybody waits. */
  serve(): void {
    if (!this.subscription.open || !this.subscription.parked) return
    if (this.#place.at === 'frames') this.#serveFrames(this.#place)
    else if (this.#place.at === 'log') void this.#serveLog()
  }

  /** Begins at the end of the log, as it was read after the subscription. */
  #settle(): void {
    const { boundary } = this.#context.tail
    if (boundary === undefined || boundary.round <= this.#round) return
    this.#live = true
    this.#join(boundary)
  }

  #join({ cursor, seq, lastId }: Boundary): void {
    this.#place = { at: 'frames', cursor, seq, offset: 0 }
    this.#passed(lastId)
  }

  /** Events up to this id are behind it. */
  #passed(id: number): void {
    const { tail } = this.#context
    this.#lastId = this.#live ? Math.max(this.#lastId ?? 0, id) : tail.lastId
  }

  #serveFrames(place: Place & { at: 'frames' }): void {
    const { tail, limits, missed } = this.#context
    if (place.seq < tail.frames.first) {
      missed()
      this.#round = tail.round
      this.#place = { at: 'log', cursor: place.cursor, target: undefined }
      void this.#serveLog()
      return
    }
    const events: JobEvent[] = []
    let { seq, offset, cursor } = place
    let lastId = 0
    for (let frame = tail.frames.get(seq); frame !== undefined && events.length < limits.batch; ) {
      const event = frame.events[offset++]!
      if (this.#matcher.matches(event)) events.push(event)
      if (offset < frame.events.length && events.length < limits.batch) continue
      lastId = Math.max(lastId, Number(event.id))
      if (offset < frame.events.length) {
        const { from, to, after } = frame
        cursor = { epoch: after.epoch, from, window: { to, lastId: event.id } }
      } else {
        cursor = frame.after
        frame = tail.frames.get(++seq)
        offset = 0
      }
    }
    const atEnd = seq === tail.frames.next
    if (atEnd && tail.head !== undefined) cursor = tail.head
    // A few events wait for more, unless there was quiet before them.
    const now = performance.now()
    if (events.length > 0 && events.length < limits.batch && now < this.#deliveredAt + limits.pace) {
      this.#turnAt(this.#deliveredAt + limits.pace)
      return
    }
    this.#place = { at: 'frames', cursor, seq, offset }
    this.#live ||= atEnd
    this.#passed(atEnd ? tail.lastId : lastId)
    this.#offer(events, cursor, atEnd && tail.settled)
    if (!atEnd && this.subscription.parked) this.#context.requestTurn(this)
  }

  async #serveLog(): Promise<void> {
    if (this.#reading) return
    this.#reading = true
    const release = await this.#context.slots.acquire()
    try {
      if (this.subscription.open && this.#place.at === 'log') await this.#readLog(this.#place)
    } catch (error) {
      if (error instanceof CursorExpiredError) this.end('cursor_expired')
      else if (isTransient(error)) this.#turnAt(performance.now() + RETRY_MS * (0.5 + Math.random()))
      else this.subscription.fail(error)
    } finally {
      release()
      this.#reading = false
    }
  }

  async #readLog(place: Place & { at: 'log' }): Promise<void> {
    const { tail, reader, limits } = this.#context
    const target = this.#targetOf(place)
    if (target === undefined && place.cursor.window === undefined) {
      // Its turn comes with the next round.
      tail.wake()
      return
    }
    const batch = await reader.readBatch(place.cursor, {
      filter: this.#matcher,
      first: limits.batch,
      scan: this.#scan,
      ...(target === undefined ? {} : { upTo: target.cursor.from }),
    })
    if (!this.subscription.open) return
    // Where few events match, reads look at more of them at a time.
    this.#scan = batch.events.length > 0 ? SCAN_MIN : Math.min(this.#scan * 4, SCAN_MAX)
    let caughtUp = false
    if (batch.caughtUp && target !== undefined) {
      this.#join(target)
      caughtUp = target.seq === tail.frames.next && tail.settled
    } else {
      const { window } = batch.cursor
      this.#place = { at: 'log', cursor: batch.cursor, target: batch.caughtUp ? undefined : target }
      this.#passed(window === undefined ? 0 : Number(window.lastId))
    }
    this.#offer(batch.events, batch.cursor, caughtUp)
    if (this.subscription.parked) this.#context.requestTurn(this)
  }

  /**
   * Where in the frames a reader of the table is to arrive: the last boundary, if it shows all that the cursor does. A
   * cursor from another process may be ahead of that, but not of a boundary that is younger than the subscription.
   */
  #targetOf({ cursor, target }: Place & { at: 'log' }): Boundary | undefined {
    if (target !== undefined || cursor.window !== undefined) return target
    const { boundary } = this.#context.tail
    if (boundary === undefined || covers(boundary.cursor.from, cursor.from)) return boundary
    if (boundary.round <= this.#round) return undefined
    throw new CursorExpiredError('The cursor is ahead of this database: read afresh.')
  }

  /** Hands events over; none at all only in a first batch and in a beat. */
  #offer(events: JobEvent[], cursor: FeedCursor, caughtUp: boolean): void {
    const now = performance.now()
    const beatAt = this.#deliveredAt + this.#context.limits.beat
    if (events.length === 0 && this.#opened && now < beatAt) {
      this.#turnAt(beatAt)
      return
    }
    this.#opened = true
    this.#deliveredAt = now
    this.subscription.deliver({ events, cursor: encodeCursor(cursor), caughtUp, ended: null })
  }

  /** Asks for a turn at a time of `performance.now()`, unless it will have one before. */
  #turnAt(time: number): void {
    if (time >= this.#due || !this.subscription.open) return
    clearTimeout(this.#timer)
    this.#due = time
    this.#timer = setTimeout(
      () => {
        this.#due = Number.POSITIVE_INFINITY
        this.#context.requestTurn(this)
      },
      Math.max(0, Math.ceil(time - performance.now())),
    )
  }
}
