import type { ClaimedJob } from '../claim/claimed-job.ts'
import { type AttemptServices, createContext } from '../context/create-context.ts'
import type { AnyDefinition } from '../definition/define-job.ts'
import { handlerFor } from '../definition/handler-for.ts'
import { LeaseLostError, ParentGoneError } from '../errors.ts'
import { failedAttempt } from '../failure/retry.ts'
import type { LazyAbort } from './abort.ts'
import { type AttemptEnd, DROPPED, PUT_BACK } from './attempt-end.ts'
import { resultOf } from './result.ts'

/** The attempt that a handler is run for. */
export interface HandlerRun {
  readonly services: AttemptServices
  readonly job: ClaimedJob
  readonly definition: AnyDefinition
  readonly abort: LazyAbort
  /** The attempt's end is known already: what the handler still does is ignored. */
  isOver(): boolean
  /** A write was refused: the attempt no longer holds its job. */
  onStale(): void
}

/** Runs the handler of a job in its phase, and says how the attempt ends by what it did. Never rejects. */
export async function runHandler(run: HandlerRun): Promise<AttemptEnd> {
  const { services, job, definition, abort } = run
  try {
    const handler = handlerFor(job, definition)
    if (handler === null) return { outcome: { kind: 'completed', result: job.result } }
    const context = await createContext(services, job, definition, abort, run.onStale)
    try {
      // A job put back at once is not begun.
      abort.throwIfAborted()
      const value = await handler(context.ctx)
      await context.finish()
      const children = context.spawned()
      if (children === null) return { outcome: { kind: 'completed', result: await resultOf(definition, value) } }
      // What comes before an aggregate is no result: that is for the aggregate to say.
      if (definition.handlers.aggregate) return { outcome: { kind: 'waiting', children } }
      return { outcome: { kind: 'waiting', children, result: await resultOf(definition, value) } }
    } catch (error) {
      if (!run.isOver()) await context.finish().catch(() => {})
      throw error
    } finally {
      context.close()
    }
  } catch (error) {
    if (saysJobIsLost(error, job.id)) return DROPPED
    if (abort.aborted) return PUT_BACK
    const failure = failedAttempt(job, error, definition.settings)
    return { outcome: failure.outcome, failure }
  }
}

/** A handler may throw anything, also what cannot even be asked for its class, such as a revoked proxy. */
function saysJobIsLost(error: unknown, jobId: string): boolean {
  try {
    if (error instanceof LeaseLostError) return error.jobId === jobId
    return error instanceof ParentGoneError && error.parentId === jobId
  } catch {
    return false
  }
}
