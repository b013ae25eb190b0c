import type { JobState } from '../states.ts'
import { type Reason, reasonOf } from './explanation.ts'
import { msSince } from './situation.ts'
import type { Subject } from './subjects.ts'
import { ageText, instantText, iso } from './words.ts'

/** It has ended: how, and when. */
export function finished(job: Subject): Reason {
  const at = job.finished_at ?? job.updated_at
  const agoMs = msSince(job, at)!
  const state = job.state as Extract<JobState, 'completed' | 'failed' | 'cancelled'>
  const failed = state === 'failed'
  const cancelled = state === 'cancelled'
  return reasonOf({
    reason: 'finished',
    clause: `${cancelled ? 'was cancelled' : state} ${ageText(agoMs)} ago, at ${instantText(at)}${whyText(job)}`,
    ...(job.archived_at && { more: 'It is archived.' }),
    facts: {
      state,
      finishedAt: iso(at),
      agoMs,
      // What an earlier attempt failed with is kept after a success.
      errorCode: failed ? job.error_code : null,
      error: failed ? job.error : null,
      cancelCode: cancelled ? job.cancel_code : null,
      cancelReason: cancelled ? job.cancel_reason : null,
      archived: job.archived_at !== null,
    },
    next: null,
  })
}

function whyText({ state, error_code, error, cancel_code, cancel_reason }: Subject): string {
  const parts = state === 'failed' ? [error_code, error] : state === 'cancelled' ? [cancel_code, cancel_reason] : []
  const why = parts.filter((part) => part !== null).join(': ')
  return why === '' ? '' : ` (${why})`
}
