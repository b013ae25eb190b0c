import { setTimeout as sleep } from 'node:timers/promises'
import type { Outcome } from '../job.ts'
import type { SettleFate } from './settler.ts'

/** Pauses between the tries of an end that PostgreSQL refuses, in ms: the row at fault may be put right meanwhile. */
const PAUSES_MS = [1000, 5000]

/** How long a job waits for its next attempt if the end of this one cannot be written, in ms. */
const AGAIN_MS = 60_000

/**
 * Settles an attempt's end. One that PostgreSQL refuses altogether, for a fault in another row, is tried a few times; then
 * the job is put back, to run again later, without spending a retry. If not even that can be written, the job is left to
 * whoever looks for claims that nobody holds.
 *
 * @param signal ends the pauses
 */
export async function insist(
  settle: (outcome: Outcome) => Promise<SettleFate>,
  outcome: Outcome,
  signal: AbortSignal,
): Promise<SettleFate> {
  for (const pauseMs of PAUSES_MS) {
    const fate = await settle(outcome)
    if (fate !== 'unsettled') return fate
    await sleep(pauseMs, undefined, { signal }).catch(() => {})
  }
  const fate = await settle(outcome)
  if (fate !== 'unsettled') return fate
  await settle({ kind: 'requeue', delayMs: AGAIN_MS, reason: 'the database refused the end of its attempt' })
  return fate
}
