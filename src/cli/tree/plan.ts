import { JOB_STATES, type JobState } from '../../engine/states.ts'
import type { Outline, OutlineJob } from './outline.ts'

/** What one line below a job shows: a child, or several children of which there is only a number. */
export type Row = { readonly job: OutlineJob } | { readonly rest: ReadonlyMap<JobState, number> }

/** The lines below each job that is unfolded, in order. */
export type Plan = ReadonlyMap<string, readonly Row[]>

/** In a list too long for the screen, jobs in these states get lines of their own; the others are only counted. */
const SHOWN_SINGLY: readonly JobState[] = ['failed', 'running', 'paused', 'waiting']
const BY_INTEREST: readonly JobState[] = [...SHOWN_SINGLY, 'queued', 'cancelled', 'completed']

/**
 * Chooses what of a tree to show in at most `room` lines below the root. If all of it fits, all is shown. Otherwise it
 * is unfolded level by level; of a list that does not fit, what is going on gets lines of its own and the rest becomes
 * one line a state, or one in all.
 */
export function planTree(outline: Outline, room: number): Plan {
  const children = childrenByParent(outline.jobs)
  const whole = everything(outline, children, room)
  if (whole) return whole
  const plan = new Map<string, readonly Row[]>()
  let left = room
  let level = [outline.root]
  while (level.length > 0 && left > 0) {
    const next: OutlineJob[] = []
    for (const [index, job] of level.entries()) {
      const fairShare = Math.ceil(left / (level.length - index))
      const known = children.get(job.id) ?? []
      // Something is to be left for the levels below.
      const share = known.some((child) => isOpenParent(child)) ? Math.ceil(fairShare * 0.6) : fairShare
      const rows = rowsOf(known, hiddenCounts(outline, job, known), share)
      if (rows.length === 0 || (job !== outline.root && saysNothing(rows))) continue
      plan.set(job.id, rows)
      left -= rows.length
      next.push(...rows.flatMap((row) => ('job' in row && row.job.childCount > 0 ? [row.job] : [])))
    }
    level = next.sort((a, b) => Number(isOpenParent(b)) - Number(isOpenParent(a)))
  }
  return plan
}

/** Every job there is, if nothing is hidden and the lines suffice. */
function everything(outline: Outline, children: Map<string, OutlineJob[]>, room: number): Plan | undefined {
  if (outline.jobs.length > room) return undefined
  const plan = new Map<string, readonly Row[]>()
  let lines = 0
  for (const job of [outline.root, ...outline.jobs]) {
    const known = children.get(job.id) ?? []
    const hidden = hiddenCounts(outline, job, known)
    if (known.length === 0 && hidden.size === 0) continue
    const rows = [...known.map((child): Row => ({ job: child })), ...singleStates(hidden)]
    plan.set(job.id, rows)
    lines += rows.length
  }
  return lines <= room ? plan : undefined
}

/** At most `room` rows for the children of one job. */
function rowsOf(known: readonly OutlineJob[], hidden: ReadonlyMap<JobState, number>, room: number): Row[] {
  if (room <= 0) return []
  if (hidden.size === 0 && known.length <= room) return known.map((job) => ({ job }))
  const groups = BY_INTEREST.map((state) => {
    const jobs = known.filter((job) => job.state === state)
    return { state, jobs, count: jobs.length + (hidden.get(state) ?? 0) }
  }).filter((group) => group.count > 0)
  if (groups.length > room) return [{ rest: new Map(groups.map(({ state, count }) => [state, count])) }]
  let spare = room - groups.length
  let undecided = groups.filter(({ state }) => SHOWN_SINGLY.includes(state)).length
  return groups.flatMap(({ state, jobs, count }): Row[] => {
    if (count === 1 && jobs.length === 1) {
      if (SHOWN_SINGLY.includes(state)) undecided--
      return [{ job: jobs[0]! }]
    }
    if (!SHOWN_SINGLY.includes(state)) return [{ rest: new Map([[state, count]]) }]
    const share = Math.ceil(spare / undecided--)
    // One line is the group's already: it holds the last job, or counts those that are left.
    const shown = jobs.length === count && count - 1 <= share ? jobs : jobs.slice(0, share)
    const rest = count - shown.length
    spare -= rest === 0 ? count - 1 : shown.length
    return [...shown.map((job): Row => ({ job })), ...(rest > 0 ? [{ rest: new Map([[state, rest]]) }] : [])]
  })
}

/** Children that are only known by number, by state. */
function hiddenCounts(outline: Outline, job: OutlineJob, known: readonly OutlineJob[]): Map<JobState, number> {
  const hidden = new Map<JobState, number>()
  const counts = outline.childCounts.get(job.id)
  if (!counts) return hidden
  for (const state of JOB_STATES) {
    const count = counts[state] - known.filter((child) => child.state === state).length
    if (count > 0) hidden.set(state, count)
  }
  return hidden
}

/** That all children have completed is in their parent's own line. */
function saysNothing(rows: readonly Row[]): boolean {
  return rows.every((row) => 'rest' in row && [...row.rest.keys()].every((state) => state === 'completed'))
}

function singleStates(hidden: ReadonlyMap<JobState, number>): Row[] {
  return BY_INTEREST.flatMap((state): Row[] => {
    const count = hidden.get(state)
    return count === undefined ? [] : [{ rest: new Map([[state, count]]) }]
  })
}

function isOpenParent(job: OutlineJob): boolean {
  return job.openChildren > 0
}

function childrenByParent(jobs: readonly OutlineJob[]): Map<string, OutlineJob[]> {
  const children = new Map<string, OutlineJob[]>()
  for (const job of jobs) {
    const siblings = children.get(job.parentId ?? '')
    if (siblings) siblings.push(job)
    else children.set(job.parentId ?? '', [job])
  }
  return children
}
