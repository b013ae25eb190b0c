import type { JobEvent } from './event.ts'

/**
 * Why a subscription ended: it fell too far behind; its cursor is older than retention or from before a crash, failover
 * or restore of the database; the process shuts down.
 */
export type FeedEnd = 'slow_consumer' | 'cursor_expired' | 'shutdown'

/** Some events, in order, and where to go on after them. */
export interface FeedBatch {
  /** At most 100; empty in a first batch with nothing to tell, in a beat, and in the last batch. */
  events: JobEvent[]
  /** Opaque; valid in any process on this database. After `cursor_expired`, the cursor that has expired. */
  cursor: string
  /** Nothing more was known when this batch was made. */
  caughtUp: boolean
  /** Set in the last batch only. */
  ended: FeedEnd | null
}
