import { formatId, formatJobId } from '../ids.ts'
import { isTerminal, type JobState } from '../states.ts'
import { type Reason, reasonOf } from './explanation.ts'
import { msSince, type Situation } from './situation.ts'
import { type Subject, stateBelow } from './subjects.ts'
import { ageText, instantText, iso, jobText, listText } from './words.ts'

/** Its parent has ended, or is gone, without keeping it. */
export function orphaned({ job }: Situation): Reason | undefined {
  const { parent_id: parent, parent_state: state } = job
  if (parent === null || job.archived_at !== null) return undefined
  if (state !== null && (!isTerminal(state as JobState) || job.parent_policy === 'keep')) return undefined
  const of =
    state === null
      ? `its parent ${formatJobId(parent)} was deleted`
      : `its parent ${jobText({ id: parent, type: job.parent_type! })} is ${state}` +
        (job.parent_ended ? ` since ${instantText(job.parent_ended)}` : '')
  return reasonOf({
    reason: 'orphaned',
    clause: `is an orphan: ${of}`,
    facts: { parent: formatJobId(parent), parentState: state, parentEndedAt: iso(job.parent_ended) },
    jobs: state === null ? [] : [parent],
    next: 'The next orphan sweep cancels it, with its active descendants.',
  })
}

/** Somebody has set it aside. */
export function paused({ job }: Situation): Reason | undefined {
  if (job.state !== 'paused') return undefined
  const forMs = msSince(job, job.paused_at)
  const since = forMs === null ? '' : ` for ${ageText(forMs)}`
  const by = job.paused_by === null ? '' : `, by ${job.paused_by}`
  const why = job.paused_why === null ? '' : ` (${job.paused_why})`
  return reasonOf({
    reason: 'paused',
    clause: `has been paused${since}${by}${why}`,
    facts: { since: iso(job.paused_at), forMs, by: job.paused_by, why: job.paused_why, from: stateBelow(job) },
    next: null,
    more: `Resumed, it is ${stateBelow(job)} again.`,
  })
}

/** Whoever it is for is not able to act. */
export function assigneeNotActive({ job }: Situation): Reason | undefined {
  if (job.assignee_id === null || job.assignee_status === 'active') return undefined
  const assignee = formatId('AS', job.assignee_id)
  const clause =
    job.assignee_status === null
      ? `has an assignee that nobody knows, ${assignee}`
      : `waits for its assignee ${assignee}, which has been ${job.assignee_status.replace('_', ' ')} for ` +
        ageText(msSince(job, job.assignee_since)!)
  const waits = stateBelow(job) === 'waiting'
  return reasonOf({
    reason: 'assignee_not_active',
    clause,
    facts: { assignee, status: job.assignee_status, since: iso(job.assignee_since) },
    next: null,
    more: `It is ${waits ? 'woken' : 'claimed'} only while ${assignee} is active.`,
  })
}

/** It can move, but something above it is set aside. */
export function pausedAncestor({ pausedAncestors: ancestors }: Situation): Reason | undefined {
  if (ancestors.length === 0) return undefined
  const names = listText(ancestors.map(jobText))
  return reasonOf({
    reason: 'paused_ancestor',
    clause: `is below ${names}, which ${ancestors.length === 1 ? 'is' : 'are'} paused`,
    facts: { ancestors: ancestors.map(({ id, type }) => ({ job: formatJobId(id), type })) },
    jobs: ancestors.map(({ id }) => id),
    count: ancestors.length,
    next: null,
    more: 'It moves all the same, but nothing follows above until that is resumed.',
  })
}

/** A failing child marked it: nothing wakes, claims or completes it any more. */
export function failing({ job }: Situation): Reason | undefined {
  if (job.failing_child_id === null || job.state === 'running') return undefined
  const child = formatJobId(job.failing_child_id)
  return withheld(job, {
    why: 'failing_child',
    clause: `is to fail: its child ${child} failed, which it does not bear`,
    jobs: [job.failing_child_id],
    next: 'The next tick of maintenance fails it, and cancels its active descendants.',
    nextAt: new Date(job.now.getTime() + TICK_MS),
  })
}

/** It is out of sight: only SQL by hand archives a job that is active. */
export function archived({ job }: Situation): Reason | undefined {
  if (job.archived_at === null) return undefined
  return withheld(job, {
    why: 'archived',
    clause: `is archived although it is ${job.state}: nothing claims or wakes it`,
    next: null,
  })
}

/** Interval of the handlers of maintenance that parents wait for, in ms. */
export const TICK_MS = 1000

/** A wake that will not come by itself. */
export function withheld(
  job: Subject,
  { why, ...given }: Pick<Reason, 'clause' | 'next'> & Partial<Reason> & { why: string; more?: string },
): Reason {
  return reasonOf({
    reason: 'wake_withheld',
    facts: {
      why,
      failingChild: job.failing_child_id && formatJobId(job.failing_child_id),
      archivedAt: iso(job.archived_at),
      waitingSince: iso(job.waiting_since),
      waitingMs: msSince(job, job.waiting_since),
    },
    ...given,
  })
}
