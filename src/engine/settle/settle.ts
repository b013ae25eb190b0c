import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { isConnectionError } from '../../db/connection-errors.ts'
import type { Database } from '../../db/database.ts'
import { endJob, failFailingParents } from '../cascade.ts'
import { JobCycleError } from '../errors.ts'
import { formatJobId } from '../ids.ts'
import type { AttemptError, Outcome } from '../job.ts'
import { endPhaseWaiting } from '../spawn.ts'
import { type BatchResult, emptyResult, mergeResults, type SettleItem } from './settle-batch.ts'
import { isSmallFanOut, settleFanOuts } from './settle-fan-outs.ts'
import { settleInner } from './settle-inner.ts'
import { settleLeaves } from './settle-leaves.ts'

/** What became of the attempts, by job id. */
export interface SettleReport {
  settled: string[]
  /** Refused: the attempt no longer held its job. Nothing was written for it. */
  stale: string[]
  /** Parents that these ends woke. */
  woken: string[]
  /** Jobs whose data PostgreSQL refused: FAILED with VALIDATION instead of what they brought. */
  refused: { id: string; error: unknown }[]
  /**
   * Jobs that PostgreSQL refused to end in any way, VALIDATION among them: another row is at fault, their parent's most
   * likely. Nothing was written; they are held still.
   */
  unsettled: { id: string; error: unknown }[]
}

/** Tries of a batch's tree locks before the waiting verb is taken, and the pause between them in ms. */
const LOCK_TRIES = 200
const LOCK_PAUSE = 5

/**
 * Settles attempts: moves each job as its outcome says, fenced by its claim token, settles its parent's edge, and wakes
 * parents whose last open child this was. Leaves go in one statement a batch, inner jobs in another transaction, small
 * fan-outs in a third; a job that spawned many children or that ends with open ones in a transaction of its own.
 *
 * Throws only when the database cannot be reached (or is at fault): the same items may then be settled again, as may those
 * reported as unsettled, and what was committed already is recognised by its token.
 */
export async function settle(
  db: Database,
  items: readonly SettleItem[],
  { actor }: { actor: string },
): Promise<SettleReport> {
  const report: SettleReport = { settled: [], stale: [], woken: [], refused: [], unsettled: [] }
  const failing = new Set<string>()
  const waiting = items.filter((item) => item.outcome.kind === 'waiting')
  let leaves = items.filter((item) => item.outcome.kind !== 'waiting' && item.job.childCount === 0)
  let inner = items.filter((item) => item.outcome.kind !== 'waiting' && item.job.childCount > 0)

  const take = (result: BatchResult) => {
    report.settled.push(...result.settled.map((item) => item.job.id))
    report.stale.push(...result.stale.map((item) => item.job.id))
    report.woken.push(...result.woken)
    for (const id of result.failing) failing.add(id)
  }

  for (let round = 0; leaves.length > 0 || inner.length > 0; round++) {
    if (round > 0) await sleep(LOCK_PAUSE)
    const patient = round >= LOCK_TRIES
    const leafResult = await halving(leaves, report, (batch) => settleLeaves(db, batch, actor))
    take(leafResult)
    const innerResult = await halving([...inner, ...leafResult.other], report, (batch) =>
      settleInner(db, batch, actor, patient),
    )
    take(innerResult)
    for (const item of innerResult.other) take(await halving([item], report, ([one]) => settleAlone(db, one!, actor)))
    leaves = leafResult.deferred
    inner = innerResult.deferred
    if (patient) {
      inner = [...inner, ...leaves]
      leaves = []
    }
  }
  const small = waiting.filter(isSmallFanOut)
  const alone = waiting.filter((item) => !isSmallFanOut(item))
  const together = await halving(small, report, (batch) => {
    const [only] = batch
    return batch.every(isSmallFanOut) && batch.length > 1
      ? settleFanOuts(db, batch, actor)
      : settleAlone(db, only!, actor)
  })
  take(together)
  for (const item of [...together.other, ...alone]) {
    take(await halving([item], report, ([one]) => settleAlone(db, one!, actor)))
  }
  for (const id of failing) report.woken.push(...(await failMarked(db, id, actor)))
  return report
}

/** Fails a parent that is marked. One that PostgreSQL refuses to fail is left to maintenance, which says so. */
async function failMarked(db: Database, id: string, actor: string): Promise<string[]> {
  try {
    return (await failFailingParents(db, [id], { actor })).woken
  } catch (error) {
    if (isConnectionError(error) || !isRefusal(error)) throw error
    return []
  }
}

/** A job that spawned, or that ends with open children: one transaction of its own. */
async function settleAlone(db: Database, item: SettleItem, actor: string): Promise<BatchResult> {
  const result = emptyResult()
  const { job, outcome } = item
  if (outcome.kind === 'waiting') {
    const end = await endPhaseWaiting(db, job, outcome.children, outcome.result, actor)
    if (end.outcome === 'stale') return { ...result, stale: [item] }
    return { ...result, settled: [item], woken: end.woken ? [job.id] : [], failing: end.failing ? [job.id] : [] }
  }
  const end = await endJob(db, job, outcome, { actor })
  if (!end) return { ...result, stale: [item] }
  return { ...result, settled: [item], woken: end.woken, failing: end.failing }
}

/**
 * Runs a batch; if PostgreSQL refuses it, runs its halves, down to the one job at fault, which is then failed with
 * VALIDATION: one bad result keeps nobody else from settling. Nor does one that cannot even be failed: it is left.
 */
async function halving(
  items: readonly SettleItem[],
  report: SettleReport,
  run: (batch: readonly SettleItem[]) => Promise<BatchResult>,
): Promise<BatchResult> {
  if (items.length === 0) return emptyResult()
  try {
    return await run(items)
  } catch (error) {
    if (isConnectionError(error) || !isRefusal(error)) throw error
    const [only] = items
    if (items.length === 1 && only) {
      const refusal: Outcome = { kind: 'failed', error: refusalOf(error) }
      const result = await run([{ job: only.job, outcome: refusal }]).catch((again: unknown) => {
        if (isConnectionError(again) || !isRefusal(again)) throw again
        report.unsettled.push({ id: only.job.id, error: again })
        return emptyResult()
      })
      if (result.settled.length > 0) report.refused.push({ id: only.job.id, error })
      return result
    }
    const middle = Math.ceil(items.length / 2)
    const left = await halving(items.slice(0, middle), report, run)
    const right = await halving(items.slice(middle), report, run)
    return mergeResults(left, right)
  }
}

/** Says of which jobs PostgreSQL refused any end. */
export function logRefusedEnds(logger: Logger, { unsettled }: SettleReport): void {
  for (const { id, error } of unsettled) {
    logger.error(
      { job: formatJobId(id), err: error },
      'The database refuses any end of the job: it is tried again later',
    )
  }
}

/**
 * Whether the rows are to blame. SQLSTATE classes: 22 data exception, 23 integrity, 54 program limit, P0 what a trigger
 * raises.
 */
function isRefusal(error: unknown): boolean {
  if (error instanceof JobCycleError) return true
  const code = (error as { code?: unknown }).code
  return typeof code === 'string' && /^(22|23|54|P0)/.test(code)
}

function refusalOf(error: unknown): AttemptError {
  const message = error instanceof Error ? error.message : String(error)
  return { message: `The database refused what the attempt brought: ${message}`, code: 'VALIDATION' }
}
