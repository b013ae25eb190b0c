import { later } from '../../db/instants.ts'
import { formatJobId } from '../ids.ts'
import type { Json, Timeouts } from '../job.ts'
import { type ExplainReason, MAX_JOBS, type Reason, reasonOf } from './explanation.ts'
import { TICK_MS, withheld } from './held.ts'
import { MAX_LEVELS } from './leaves.ts'
import { type HoldingLeaf, msSince, type Situation } from './situation.ts'
import { MAX_COUNTED, type Subject } from './subjects.ts'
import { ageText, countText, iso, jobText } from './words.ts'

/** Leaves that the sentence names. */
const MAX_NAMED = 3

/** Children of it are open: which, and what the last of them wait for. */
export function openChildren({ job, leaves }: Situation): Reason | undefined {
  if (job.open === 0) return undefined
  const atLeast = job.open === MAX_COUNTED
  const open = atLeast ? Math.max(job.open, job.open_children) : job.open
  const ranked = [...leaves].sort(byTrouble)
  const wait = waitLimit(job)
  const ids = new Set([...ranked.map((leaf) => leaf.job.id), ...job.first_open])
  const waitingMs = msSince(job, job.waiting_since)
  return reasonOf({
    reason: 'open_children',
    clause: `${waitingMs === null ? 'waits' : `has waited ${ageText(waitingMs)}`} for ${openText(open, job.child_count)}`,
    more: heldUpText(ranked),
    facts: {
      open,
      openAtLeast: atLeast,
      total: job.child_count,
      children: job.first_open.map(formatJobId),
      leaves: ranked.map(leafFacts),
      waitingSince: iso(job.waiting_since),
      waitingMs,
      waitLimitMs: wait?.ms ?? null,
      waitEndsAt: iso(wait?.endsAt),
      onWaitTimeout: wait?.action ?? null,
    },
    jobs: [...ids].slice(0, MAX_JOBS),
    count: open,
    next: `When all of them have ended, it aggregates.${waitText(wait)}`,
    nextAt: wait?.endsAt ?? null,
  })
}

/** Nothing is open, and the next tick wakes it; or, of one that recovery leaves alone, nothing does. */
export function settled({ job }: Situation): Reason {
  const waitingMs = msSince(job, job.waiting_since)
  const children = job.child_count === 0 ? 'has no children' : `has ${countText(job.child_count, 'child', 'children')}`
  const none = `${children}${job.child_count === 0 ? '' : ', none of them open'}`
  if (job.ephemeral) {
    const wait = waitLimit(job)
    return withheld(job, {
      why: 'ephemeral',
      ...(waitingMs !== null && { more: `It has waited ${ageText(waitingMs)}.` }),
      clause: `${none}, but is ephemeral: recovery never wakes it`,
      next: wait ? waitText(wait).trim() : null,
      nextAt: wait?.endsAt ?? null,
    })
  }
  const counted = job.open_children
  return reasonOf({
    reason: 'wake_due',
    clause: `${none}: its wake is due`,
    more: [
      ...(waitingMs === null ? [] : [`It has waited ${ageText(waitingMs)}.`]),
      ...(counted > 0 ? [`Its counter says ${counted}, which is wrong and will be repaired.`] : []),
    ].join(' '),
    facts: { total: job.child_count, counted, waitingSince: iso(job.waiting_since), waitingMs },
    next: 'The next tick of the reconciler wakes it.',
    nextAt: new Date(job.now.getTime() + TICK_MS),
  })
}

function openText(open: number, total: number): string {
  if (total === 1) return 'its only child'
  if (open >= total) return `all of its ${countText(total, 'child', 'children')}`
  return `${open.toLocaleString('en')} of its ${countText(total, 'child', 'children')}`
}

function heldUpText(leaves: readonly HoldingLeaf[]): string {
  if (leaves.length === 0) return `Its open descendants go deeper than ${MAX_LEVELS} levels.`
  const named = leaves.slice(0, MAX_NAMED).map(({ job, reason }) => `${jobText(job)}, which ${reason.clause}`)
  const rest = leaves.length - named.length
  return `Held up by ${named.join('; by ')}${rest > 0 ? `; and by ${countText(rest, 'other')}` : ''}.`
}

function leafFacts({ job, levels, reason }: HoldingLeaf): Json {
  return {
    job: formatJobId(job.id),
    type: job.type,
    key: job.key,
    depth: levels,
    reason: reason.reason,
    sentence: reason.sentence,
    nextAt: iso(reason.nextAt),
  }
}

/** What somebody must do something about comes first, what goes on by itself last. */
const BY_TROUBLE: readonly ExplainReason[] = [
  'wake_withheld',
  'orphaned',
  'paused',
  'assignee_not_active',
  'no_worker',
  'concurrency_limit',
  'running',
  'scheduled',
  'in_line',
]

function byTrouble(a: HoldingLeaf, b: HoldingLeaf): number {
  const trouble = (leaf: HoldingLeaf) => {
    const place = BY_TROUBLE.indexOf(leaf.reason.reason)
    return place === -1 ? BY_TROUBLE.length : place
  }
  const since = ({ job }: HoldingLeaf) => (job.claimed_at ?? job.created_at).getTime()
  return trouble(a) - trouble(b) || since(a) - since(b)
}

interface WaitLimit {
  ms: number
  endsAt: Date
  action: 'fail' | 'aggregate'
}

function waitLimit(job: Subject): WaitLimit | undefined {
  const { wait, onWaitTimeout = 'fail' } = job.timeouts as Timeouts
  if (typeof wait !== 'number' || job.waiting_since === null) return undefined
  return { ms: wait, endsAt: later(job.waiting_since, wait), action: onWaitTimeout }
}

function waitText(wait: WaitLimit | undefined): string {
  if (!wait) return ''
  const then = wait.action === 'fail' ? 'it fails' : 'it aggregates what there is'
  return ` If it still waits after ${ageText(wait.ms)}, ${then}.`
}
