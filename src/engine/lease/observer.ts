/** What one look at the worker table says of another worker. */
export interface Sighting {
  id: string
  /** Its beat counter, as text: only compared for equality. */
  beat: string
  /** How often it says it beats, in ms. */
  intervalMs: number
}

/** One look at the worker table: an own beat that succeeded. Times are in ms of one monotonic clock. */
export interface Look {
  /** Before the statement was sent: what it returned is not older than this. */
  sentAt: number
  /** After its answer came: what it returned is not newer than this. */
  receivedAt: number
  /** The other workers that nobody has declared dead. */
  workers: readonly Sighting[]
}

/** A worker whose beat stood still for too long, at the beat where it stands. */
export interface Suspect {
  id: string
  beat: string
}

/** What follows from a look. */
export interface Verdict {
  suspects: Suspect[]
  /** When the next worker becomes a suspect unless it beats: a time on the same clock; null if all have moved. */
  nextDueAt: number | null
}

/** Decides who is dead, from looks alone. */
export interface Observer {
  /** To be told of every look, in order. */
  look(look: Look): Verdict
  /** An own beat failed: nothing seen until now says anything about others. */
  reset(): void
}

/** Intervals of its own that a worker may stand still for. */
const INTERVALS = 2

/** Longest pause between own looks, in own intervals, after which earlier looks count no more. */
const OWN_GAP = 1.5

/** What is added to a limit for timers that fire late. */
export function slackMs(intervalMs: number): number {
  return Math.max(100, intervalMs / 10)
}

/** How long the beat of a worker with this interval may stand still before it is dead, in ms. */
export function stillnessLimitMs(intervalMs: number): number {
  return INTERVALS * intervalMs + slackMs(intervalMs)
}

interface Observation {
  beat: string
  /** When the first answer that showed this beat had come. */
  since: number
}

/**
 * Watches other workers' beat counters. One is suspect when two looks showed the same beat, all own beats between them
 * succeeded, and more than two of *its* intervals (and a little slack) passed from the first look's answer to the
 * second's question: so it certainly did not beat in between. Timestamps are never compared, so a clock that jumps, here
 * or in the database, harms nobody. An own failure, or a pause between own looks of more than 1.5 own intervals, starts
 * everything over: the database was away, or this process was frozen, or its host suspended, and then the others may
 * have been stopped by the same thing.
 */
export function createObserver(ownIntervalMs: number): Observer {
  const longestGapMs = OWN_GAP * ownIntervalMs + slackMs(ownIntervalMs)
  let observations = new Map<string, Observation>()
  let lastReceivedAt: number | undefined

  return {
    look({ sentAt, receivedAt, workers }) {
      if (lastReceivedAt !== undefined && receivedAt - lastReceivedAt > longestGapMs) observations.clear()
      lastReceivedAt = receivedAt
      const suspects: Suspect[] = []
      let nextDueAt: number | null = null
      const next = new Map<string, Observation>()
      for (const { id, beat, intervalMs } of workers) {
        const before = observations.get(id)
        if (before?.beat !== beat) {
          next.set(id, { beat, since: receivedAt })
          continue
        }
        next.set(id, before)
        const dueAt = before.since + stillnessLimitMs(intervalMs)
        if (sentAt >= dueAt) suspects.push({ id, beat })
        else if (nextDueAt === null || dueAt < nextDueAt) nextDueAt = dueAt
      }
      observations = next
      return { suspects, nextDueAt }
    },
    reset() {
      observations.clear()
      lastReceivedAt = undefined
    },
  }
}
