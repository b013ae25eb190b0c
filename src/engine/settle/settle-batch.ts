import type { Outcome } from '../job.ts'

/** What settling needs to know of the job that an attempt holds. A ClaimedJob will do. */
export interface SettleJob {
  id: string
  treeId: string
  parentId: string | null
  depth: number
  wave: number
  claimToken: string
  /** As it was claimed: decides only which statement is tried first. */
  childCount: number
}

/** One attempt that has ended. */
export interface SettleItem {
  job: SettleJob
  outcome: Outcome
}

/** What one transaction over a batch came to. Items in no list had a tree lock that was not to be had, or are other's. */
export interface BatchResult {
  settled: SettleItem[]
  stale: SettleItem[]
  /** Not for this path: leaves that turned out to have children, jobs that end with open children. */
  other: SettleItem[]
  /** A tree lock was not to be had: to be tried again. */
  deferred: SettleItem[]
  woken: string[]
  /** Parents (or jobs) with a child whose failure is not borne. */
  failing: string[]
}

/** A result with nothing in it. */
export function emptyResult(): BatchResult {
  return { settled: [], stale: [], other: [], deferred: [], woken: [], failing: [] }
}

/** Two batches' results as one. */
export function mergeResults(a: BatchResult, b: BatchResult): BatchResult {
  return {
    settled: [...a.settled, ...b.settled],
    stale: [...a.stale, ...b.stale],
    other: [...a.other, ...b.other],
    deferred: [...a.deferred, ...b.deferred],
    woken: [...a.woken, ...b.woken],
    failing: [...a.failing, ...b.failing],
  }
}
