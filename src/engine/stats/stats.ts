import type { Database } from '../../db/database.ts'
import type { Feed, FeedStats } from '../feed/hub.ts'
import type { WakeSource } from '../job.ts'
import { type StateCounts, stateCounts } from '../reads/state-counts.ts'
import { PacedRead } from '../watch/paced-read.ts'
import { countActive, countTerminal, readSummary } from './statements.ts'
import type { WakeCounters } from './wake-counters.ts'

/** The installation in numbers. Jobs and wakes are of the whole database, the feed is of this process. */
export interface Stats {
  /** When they were read, by the database's clock. */
  at: Date
  /**
   * Without archived ones. Active states are counted each time; of terminal ones the counts may be some time old: twenty
   * times what it takes to count them, which is a moment for 10,000 jobs and ten seconds or so for a million.
   */
  jobs: StateCounts
  /** `runAt` of the oldest job that is due and not claimed; null if none. */
  oldestDueAt: Date | null
  /** Since when the longest-waiting parent waits; null if none. */
  oldestWaitingAt: Date | null
  wakes: WakeStats
  feed: FeedStats & {
    /** Age of the oldest open transaction whose events may yet come, in milliseconds; null if none. */
    heldUpByMs: number | null
  }
}

/** The wake counters, since the database was made. What other processes counted may be five seconds old. */
export interface WakeStats {
  /** Stuck parents that ticks have found. */
  candidates: bigint
  /** Wakes delivered, by source. */
  emitted: Record<WakeSource, bigint>
  /** Wakes found to be delivered already. */
  deduplicated: bigint
  /** Wakes held back because the assignee is not active or unknown. */
  assigneeUnresolved: bigint
  /** Wakes given up because the child set changed meanwhile. */
  superseded: bigint
  /** Wrong counters of open children put right. */
  driftRepaired: bigint
  /** Parents the last tick found stuck. */
  stuck: number
  /** When the reconciler last ticked; null before the first. */
  lastTickAt: Date | null
  /** How long that took, in milliseconds; null before the first. */
  lastTickMs: number | null
}

/** What the figures are read from. */
export interface StatsSources {
  db: Database
  feed: Pick<Feed, 'stats' | 'heldUpBy'>
  wakeCounters: Pick<WakeCounters, 'read'>
}

/** Share of one connection's time that the cheap figures may take, and that of counting terminal jobs: 1 in … + 1. */
const CHEAP_REST = 9
const DEAR_REST = 20

/** Makes the reading of the figures. Who asks while they are being read gets those. */
export function createStats({ db, feed, wakeCounters }: StatsSources): () => Promise<Stats> {
  const active = new PacedRead(() => db.query(countActive), CHEAP_REST)
  const terminal = new PacedRead(() => db.query(countTerminal), DEAR_REST)
  const summary = new PacedRead(async () => (await db.query(readSummary))[0]!, CHEAP_REST)
  const wakes = new PacedRead(() => wakeCounters.read(), CHEAP_REST)

  return async () => {
    const [open, ended, row, counters, heldUpByMs] = await Promise.all([
      active.recent(),
      terminal.recent(),
      summary.recent(),
      wakes.recent(),
      feed.heldUpBy(),
    ])
    const emitted = (source: WakeSource) => counters.get(`emitted:${source}`) ?? 0n
    return {
      at: row.at,
      jobs: stateCounts([...open, ...ended]),
      oldestDueAt: row.oldest_due,
      oldestWaitingAt: row.oldest_waiting,
      wakes: {
        candidates: counters.get('candidates') ?? 0n,
        emitted: {
          edge: emitted('edge'),
          reconciler: emitted('reconciler'),
          manual: emitted('manual'),
          timeout: emitted('timeout'),
        },
        deduplicated: counters.get('deduplicated') ?? 0n,
        assigneeUnresolved: counters.get('assignee_unresolved') ?? 0n,
        superseded: counters.get('superseded') ?? 0n,
        driftRepaired: counters.get('drift_repaired') ?? 0n,
        stuck: row.stuck,
        lastTickAt: row.ticked_at,
        lastTickMs: row.took_ms,
      },
      feed: { ...feed.stats(), heldUpByMs },
    }
  }
}
