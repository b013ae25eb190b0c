import { CONTRACT } from './definition/contract.ts'
import { parseJsonOrThrow, type SchemaSlot } from './definition/standard-schema.ts'
import type { Enqueued, Json, NewJob } from './job.ts'
import type { JobEnd } from './wait-for.ts'

const SCHEMA: unique symbol = Symbol('coppice.result') as never
declare const RESULT: unique symbol

/** A job that was enqueued. Knows its result's type if a contract made the job. */
export interface JobHandle<Result = Json> extends Enqueued {
  readonly [SCHEMA]: SchemaSlot
  /** Never there: carries the type. */
  readonly [RESULT]?: Result
}

/** The handle of a job that was enqueued as `job`. */
export function jobHandle<Result>(enqueued: Enqueued, job: NewJob): JobHandle<Result> {
  const contract = (job as { [CONTRACT]?: { result: SchemaSlot } })[CONTRACT]
  // Not enumerable: a handle is printed and compared as what was enqueued.
  return Object.defineProperty({ ...enqueued }, SCHEMA, { value: contract?.result }) as JobHandle<Result>
}

/**
 * The end of a job with its result as its contract gives it.
 *
 * @throws {ValidationError} when the result is not what the contract says.
 */
export async function typedEnd<Result>(handle: JobHandle<Result>, end: JobEnd): Promise<JobEnd<Result>> {
  if (end.state !== 'completed') return end
  return { ...end, result: (await parseJsonOrThrow(handle[SCHEMA], end.result, 'result')) as Result }
}
