import { z } from 'zod'
import { declareJob, defineJob, RetryableError } from '../src/index.ts'

/** Fails the first `failures` attempts and then completes, to see retries. */
export const flaky = declareJob({
  type: 'flaky',
  payload: z.object({
    /** Attempts that fail; with more of them than the job has retries it ends as FAILED. */
    failures: z.int().min(0).default(1),
    /** Time until the next attempt, such as `200ms`; default: the usual backoff. */
    delay: z.string().optional(),
  }),
  result: z.object({ attempts: z.number() }),
})

export const flakyJob = defineJob(flaky, {
  async run(ctx) {
    const { failures, delay } = ctx.payload
    if (ctx.attempt <= failures) {
      throw new RetryableError(
        `Attempt ${ctx.attempt} fails, as do the first ${failures}`,
        delay === undefined ? {} : { delay },
      )
    }
    return { attempts: ctx.attempt }
  },
})
