import { groupBy } from '../../engine/reads/group-by.ts'
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
 * is unfolded level by level; of a list that does not fit, what is going on and what leads to it gets lines of its own,
 * and the rest becomes one line a state, or one in all.
 */
export function planTree(outline: Outline, room: number): Plan {
  const tree = treeOf(outline)
  const whole = everything(tree, room)
  if (whole) return whole
  const plan = new Map<string, readonly Row[]>()
  let left = room
  let level = [outline.root]
  while (level.length > 0 && left > 0) {
    const next: OutlineJob[] = []
    for (const [index, job] of level.entries()) {
      const fairShare = Math.ceil(left / (level.length - index))
      // Something is to be left for the levels below.
      const leadsOn = tree.children(job).some((child) => tree.leads(child))
      const rows = rowsOf(tree, job, leadsOn ? Math.ceil(fairShare * 0.6) : fairShare)
      if (rows.length === 0 || (job !== outline.root && saysNothing(rows))) continue
      plan.set(job.id, rows)
      left -= rows.length
      next.push(...rows.flatMap((row) => ('job' in row && row.job.childCount > 0 ? [row.job] : [])))
    }
    level = next.sort((a, b) => Number(tree.leads(b)) - Number(tree.leads(a)))
  }
  return plan
}

/** What is known of a tree, at hand. */
interface Tree {
  readonly outline: Outline
  children(job: OutlineJob): readonly OutlineJob[]
  /** Children that are only known by number, by state. */
  hidden(job: OutlineJob): ReadonlyMap<JobState, number>
  /** Whether there is something going on, or something that failed, below a job. */
  leads(job: OutlineJob): boolean
}

function treeOf(outline: Outline): Tree {
  const children = groupBy(outline.jobs, ({ parentId }) => parentId ?? '')
  const parents = new Map(outline.jobs.map(({ id, parentId }) => [id, parentId]))
  const leading = new Set<string>()
  for (const { state, parentId } of outline.jobs) {
    if (!SHOWN_SINGLY.includes(state)) continue
    for (let id = parentId; id !== null && !leading.has(id); id = parents.get(id) ?? null) leading.add(id)
  }
  const tree: Tree = {
    outline,
    children: ({ id }) => children.get(id) ?? [],
    hidden(job) {
      const hidden = new Map<JobState, number>()
      const counts = outline.childCounts.get(job.id)
      if (!counts) return hidden
      for (const state of JOB_STATES) {
        const count = counts[state] - tree.children(job).filter((child) => child.state === state).length
        if (count > 0) hidden.set(state, count)
      }
      return hidden
    },
    leads: ({ id, openChildren }) => openChildren > 0 || leading.has(id),
  }
  return tree
}

/** Every job there is, if the lines suffice. */
function everything(tree: Tree, room: number): Plan | undefined {
  const { root, jobs } = tree.outline
  if (jobs.length > room) return undefined
  const plan = new Map<string, readonly Row[]>()
  let lines = 0
  for (const job of [root, ...jobs]) {
    const hidden = tree.hidden(job)
    const rows: Row[] = tree.children(job).map((child) => ({ job: child }))
    for (const state of BY_INTEREST) if (hidden.has(state)) rows.push({ rest: new Map([[state, hidden.get(state)!]]) })
    if (rows.length > 0) plan.set(job.id, rows)
    lines += rows.length
  }
  return lines <= room ? plan : undefined
}

/** At most `room` rows for the children of one job. */
function rowsOf(tree: Tree, parent: OutlineJob, room: number): Row[] {
  const known = tree.children(parent)
  const hidden = tree.hidden(parent)
  if (room <= 0) return []
  if (hidden.size === 0 && known.length <= room) return known.map((job) => ({ job }))
  const groups = BY_INTEREST.map((state) => {
    const jobs = known.filter((job) => job.state === state)
    const leading = jobs.filter((job) => tree.leads(job))
    const others = SHOWN_SINGLY.includes(state) ? jobs.filter((job) => !tree.leads(job)) : []
    return { state, singly: [...leading, ...others], count: jobs.length + (hidden.get(state) ?? 0) }
  }).filter((group) => group.count > 0)
  if (groups.length > room) return [{ rest: new Map(groups.map(({ state, count }) => [state, count])) }]
  let spare = room - groups.length
  let undecided = groups.filter(({ singly }) => singly.length > 0).length
  return groups.flatMap(({ state, singly, count }): Row[] => {
    const share = singly.length > 0 ? Math.ceil(spare / undecided--) : 0
    // One line is the group's already: it holds the last job, or counts those that are left.
    const shown = singly.length === count && count - 1 <= share ? singly : singly.slice(0, share)
    const rest = count - shown.length
    spare -= rest === 0 ? count - 1 : shown.length
    return [...shown.map((job): Row => ({ job })), ...(rest > 0 ? [{ rest: new Map([[state, rest]]) }] : [])]
  })
}

/** That all children have completed is in their parent's own line. */
function saysNothing(rows: readonly Row[]): boolean {
  return rows.every((row) => 'rest' in row && [...row.rest.keys()].every((state) => state === 'completed'))
}
