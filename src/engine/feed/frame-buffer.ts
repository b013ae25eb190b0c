import type { FeedCursor } from './cursor.ts'
import type { JobEvent } from './event.ts'
import type { Snapshot } from './snapshot.ts'

/** What one shared read of the log has brought: never empty. */
export interface Frame {
  readonly events: readonly JobEvent[]
  /** The window that the events are of. */
  readonly from: Snapshot
  readonly to: Snapshot
  /** Where to go on after the last of them. */
  readonly after: FeedCursor
  /** Size of the events as JSON text. */
  readonly size: number
}

/** The latest frames, numbered without gaps. After `clear`, every number from before is below `first`. */
export interface FrameBuffer {
  /** Number of the oldest frame that is kept; `next` if there is none. */
  readonly first: number
  /** Number that the next frame will have. */
  readonly next: number
  get(seq: number): Frame | undefined
  push(frame: Frame): void
  clear(): void
}

/** Keeps frames up to so many events and so much JSON text; the last frame always. */
export function createFrameBuffer(limits: { events: number; size: number }): FrameBuffer {
  const frames = new Map<number, Frame>()
  let first = 0
  let next = 0
  let events = 0
  let size = 0

  function count(frame: Frame, sign: 1 | -1) {
    events += sign * frame.events.length
    size += sign * frame.size
  }

  return {
    get first() {
      return first
    },
    get next() {
      return next
    },
    get: (seq) => frames.get(seq),
    push(frame) {
      frames.set(next++, frame)
      count(frame, 1)
      while (next - first > 1 && (events > limits.events || size > limits.size)) {
        count(frames.get(first)!, -1)
        frames.delete(first++)
      }
    },
    clear() {
      frames.clear()
      first = ++next
      events = 0
      size = 0
    },
  }
}
