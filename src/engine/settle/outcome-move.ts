import { formatJobId } from '../ids.ts'
import type { AttemptError, Outcome } from '../job.ts'
import type { SettleItem } from './settle-batch.ts'

/** The move that an outcome asks for, as the settle statements take it. */
export interface Move {
  id: string
  claimToken: string
  to: 'completed' | 'failed' | 'queued' | 'waiting'
  /** JSON text. */
  result: string | null
  error: string | null
  errorCode: string | null
  errorStack: string | null
  /** Milliseconds until it may be claimed. */
  delay: number
  /** Retries spent: 0 or 1. */
  spend: 0 | 1
  reason: string | null
  /** JSON text. */
  detail: string | null
}

/** Moves as one array a column, in the order that the statements name them. */
export type MoveColumns = readonly (readonly unknown[])[]

/** What an ended attempt's outcome does to its job's row. */
export function moveOf({ job, outcome }: SettleItem): Move {
  const base = {
    id: job.id,
    claimToken: job.claimToken,
    result: null,
    error: null,
    errorCode: null,
    errorStack: null,
    delay: 0,
    spend: 0 as 0 | 1,
    reason: null,
    detail: null,
  }
  switch (outcome.kind) {
    case 'completed':
      return { ...base, to: 'completed', result: JSON.stringify(outcome.result ?? null) }
    case 'failed':
      return { ...base, ...errorColumns(outcome.error), to: 'failed' }
    case 'retry':
      return {
        ...base,
        ...errorColumns(outcome.error, outcome.delayMs),
        to: 'queued',
        delay: outcome.delayMs,
        spend: 1,
      }
    case 'requeue':
      return { ...base, to: 'queued', delay: outcome.delayMs, reason: outcome.reason, detail: delayDetail(outcome) }
    case 'waiting':
      throw new TypeError('A phase that spawned ends by endPhaseWaiting')
  }
}

/** A job's own columns, read under its lock, that can turn what its attempt's end would do. */
export interface HeldJob {
  phase: string
  open_children: number
  children_reopened: boolean
  failing_child_id: string | null
}

/**
 * The move of an attempt that has children, by what became of them meanwhile: no completion passes a child's failure
 * that is not borne, and where children were reopened or added the job waits (again) instead of ending or retrying, also if they have
 * settled by now: the present child set is not the one that it saw.
 */
export function moveOfParent(item: SettleItem, held: HeldJob): Move {
  const move = moveOf(item)
  if (held.failing_child_id !== null && move.to === 'completed') {
    return moveOf({ job: item.job, outcome: { kind: 'failed', error: childFailed(held.failing_child_id) } })
  }
  // An ingest that is retried has yet to spawn what it wants.
  const ends = move.to === 'completed' || (move.to === 'queued' && held.phase === 'aggregate')
  if (held.children_reopened && ends) {
    const detail = JSON.stringify({ ...JSON.parse(move.detail ?? '{}'), result: JSON.parse(move.result ?? 'null') })
    return { ...move, to: 'waiting', spend: 0, reason: 'children were reopened or added meanwhile', detail }
  }
  return move
}

/** The error of a parent whose child's failure is not borne. */
export function childFailed(childId: string): AttemptError {
  return { message: `Child ${formatJobId(childId)} failed, which this job does not bear.`, code: 'CHILD_FAILED' }
}

/** Moves, a column each. */
export function moveColumns(moves: readonly Move[]): MoveColumns {
  return [
    moves.map((move) => move.id),
    moves.map((move) => move.claimToken),
    moves.map((move) => move.to),
    moves.map((move) => move.result),
    moves.map((move) => move.error),
    moves.map((move) => move.errorCode),
    moves.map((move) => move.errorStack),
    moves.map((move) => move.delay),
    moves.map((move) => move.spend),
    moves.map((move) => move.reason),
    moves.map((move) => move.detail),
  ]
}

function errorColumns(error: AttemptError, delayMs?: number) {
  return {
    error: error.message,
    errorCode: error.code,
    errorStack: error.stack ?? null,
    reason: error.message,
    detail: JSON.stringify({
      error: { message: error.message, code: error.code, stack: error.stack ?? null },
      ...(delayMs === undefined ? {} : { retryDelayMs: Math.round(delayMs) }),
    }),
  }
}

function delayDetail(outcome: Extract<Outcome, { kind: 'requeue' }>): string | null {
  return outcome.delayMs > 0 ? JSON.stringify({ delayMs: Math.round(outcome.delayMs) }) : null
}
