import type { Logger } from 'pino'
import { CursorExpiredError } from '../errors.ts'
import type { FeedCursor } from './cursor.ts'
import { createFrameBuffer, type FrameBuffer } from './frame-buffer.ts'
import { createNap, type Nap } from './nap.ts'
import type { FeedReader } from './reader.ts'
import { isTransient } from './transient.ts'

/** A place between two windows of the shared reading. */
export interface Boundary {
  readonly cursor: FeedCursor
  /** Number of the frame that begins here. */
  readonly seq: number
  /** The round that ended here. */
  readonly round: number
  /** Highest event id so far. */
  readonly lastId: number
}

/** Reads the end of the log for everybody in the process, as long as it is started. */
export interface Tail {
  readonly frames: FrameBuffer
  /** Where the last complete round ended; undefined until one has. */
  readonly boundary: Boundary | undefined
  /** Where it will go on reading. */
  readonly head: FeedCursor | undefined
  /** Highest event id so far. */
  readonly lastId: number
  /** Number of the last round begun. A boundary of a higher one is younger than now. */
  readonly round: number
  /** The last round was completed: nothing more is known. */
  readonly settled: boolean
  /** For how long something has been there to read, in milliseconds. */
  readonly lag: number
  start(): void
  /** Stops and forgets what it has read; it may be started again. */
  stop(): void
  /** There may be something new: another round, now or after the one under way. */
  wake(): void
  /** Returns when no read is under way any more. */
  idle(): Promise<void>
}

/** What a tail needs, and whom it tells. Times are in milliseconds. */
export interface TailOptions {
  reader: FeedReader
  logger: Logger
  /** A round without being woken. */
  pollMs: number
  /** Bounds of the shared buffer. */
  buffer: { events: number; size: number }
  /** Events were read, or (without) a round was completed. `before` is the highest id before that. */
  onAdvance(events: boolean, before: number): void
  /** What was read last may have been followed by events that are lost: the tail begins anew. */
  onExpired(): void
  /** A round has failed in a way that will not pass by itself. */
  onFailure(error: unknown): void
}

/** Events of one read. */
const PAGE = 500
/** Rounds begin at least so far apart: a burst of rings becomes 50 reads a second at most. */
const MIN_INTERVAL_MS = 20
/** A read that takes longer has lost its connection. */
const DEADLINE_MS = 15_000
const BACKOFF_MS = 100
const BACKOFF_CAP_MS = 2_000

/** From one start to the next stop. */
interface Life {
  readonly nap: Nap
  /** It sleeps until something happens, not out of courtesy. */
  wakeable: boolean
  over: boolean
}

/** Makes the shared reading. Each round reads one window, in pages. */
export function createTail(options: TailOptions): Tail {
  const { reader, logger, pollMs } = options
  const frames = createFrameBuffer(options.buffer)
  const running = new Set<Promise<void>>()
  let current: Life | undefined
  let boundary: Boundary | undefined
  let head: FeedCursor | undefined
  let lastId = 0
  let round = 0
  let settled = false
  let failures = 0
  /** Since when something has been there to read. */
  let dirtySince: number | undefined

  async function live(life: Life): Promise<void> {
    while (!life.over) {
      const begun = performance.now()
      const dirtyBefore = dirtySince
      dirtySince = undefined
      round++
      try {
        await readRound(life)
        if (life.over) return
        if (failures > 0) logger.info({ failures }, 'the event log is read again')
        failures = 0
        await untilWoken(life)
        if (!life.over) await life.nap.sleep(MIN_INTERVAL_MS - (performance.now() - begun))
      } catch (error) {
        if (life.over) return
        settled = false
        dirtySince = dirtyBefore ?? begun
        if (error instanceof CursorExpiredError) restart(error)
        else await afterFailure(error, life)
      }
    }
  }

  async function readRound(life: Life): Promise<void> {
    let events = false
    let before = lastId
    if (head === undefined) {
      const present = await reader.present()
      if (life.over) return
      head = present.cursor
      lastId = present.lastId
    } else {
      for (let complete = false; !complete; ) {
        const batch = await reader.readBatch(head, { first: PAGE, deadlineMs: DEADLINE_MS })
        if (life.over) return
        head = batch.cursor
        complete = batch.caughtUp
        settled = complete
        events = batch.events.length > 0
        before = lastId
        if (!events) continue
        lastId = Math.max(lastId, Number(batch.events.at(-1)!.id))
        frames.push({ events: batch.events, from: batch.from, to: batch.to, after: batch.cursor, size: batch.size })
        if (!complete) options.onAdvance(true, before)
      }
    }
    settled = true
    boundary = { cursor: head, seq: frames.next, round, lastId }
    options.onAdvance(events, before)
  }

  /** After a crash, failover or restore: what comes now is another log. */
  function restart(error: CursorExpiredError) {
    logger.warn({ err: error }, 'the feed begins anew')
    forget()
    options.onExpired()
  }

  async function afterFailure(error: unknown, life: Life): Promise<void> {
    const transient = isTransient(error)
    const level = transient ? 'warn' : 'error'
    if (failures++ === 0) logger[level]({ err: error }, 'the event log cannot be read; trying again')
    if (!transient) options.onFailure(error)
    const wait = Math.min(BACKOFF_MS * 2 ** failures, BACKOFF_CAP_MS)
    await life.nap.sleep(wait * (0.5 + Math.random() / 2))
  }

  async function untilWoken(life: Life): Promise<void> {
    if (dirtySince !== undefined) return
    life.wakeable = true
    await life.nap.sleep(pollMs)
    life.wakeable = false
  }

  function forget() {
    frames.clear()
    boundary = undefined
    head = undefined
    settled = false
  }

  return {
    frames,
    get boundary() {
      return boundary
    },
    get head() {
      return head
    },
    get lastId() {
      return lastId
    },
    get round() {
      return round
    },
    get settled() {
      return settled
    },
    get lag() {
      return current === undefined || dirtySince === undefined ? 0 : performance.now() - dirtySince
    },
    start() {
      if (current !== undefined) return
      current = { nap: createNap(), wakeable: false, over: false }
      failures = 0
      const run = live(current).finally(() => running.delete(run))
      running.add(run)
    },
    stop() {
      if (current === undefined) return
      current.over = true
      current.nap.interrupt()
      current = undefined
      dirtySince = undefined
      forget()
    },
    wake() {
      if (current === undefined) return
      dirtySince ??= performance.now()
      if (current.wakeable) current.nap.interrupt()
    },
    async idle() {
      await Promise.all(running)
    },
  }
}
