import fc from 'fast-check'
import type { Outline, OutlineJob } from '../../src/cli/tree/outline.ts'
import { type StateCounts, stateCounts } from '../../src/engine/reads/state-counts.ts'
import { isTerminal, JOB_STATES, PHASES } from '../../src/engine/states.ts'

/** A job for tests of what the terminal shows. */
export function outlineJob(job: Partial<OutlineJob> & { id: string }): OutlineJob {
  return {
    parentId: null,
    type: 'digest-folder',
    key: null,
    state: 'running',
    phase: 'ingest',
    wave: 0,
    retryCount: 0,
    maxRetries: 2,
    childCount: 0,
    openChildren: 0,
    progress: null,
    errorCode: null,
    error: null,
    cancelReason: null,
    ...job,
  }
}

/** An outline of jobs of which the first is the root; `hidden` children are counted only. */
export function outlineOf(jobs: readonly OutlineJob[], hidden: Record<string, Partial<StateCounts>> = {}): Outline {
  const counted = jobs.map((job) => {
    const states = jobs.filter((child) => child.parentId === job.id).map(({ state }) => ({ state, count: 1 }))
    const others = Object.entries(hidden[job.id] ?? {}).map(([state, count]) => ({ state, count: count as number }))
    const counts = stateCounts([...states, ...others])
    return { job: { ...job, childCount: counts.total, openChildren: counts.open }, counts }
  })
  const all = Object.values(hidden).flatMap((counts) =>
    Object.entries(counts).map(([state, count]) => ({ state, count: count as number })),
  )
  return {
    root: counted[0]!.job,
    jobs: counted.slice(1).map(({ job }) => job),
    childCounts: new Map(Object.keys(hidden).map((id) => [id, counted.find(({ job }) => job.id === id)!.counts])),
    counts: stateCounts([...jobs.map(({ state }) => ({ state, count: 1 })), ...all]),
    ageMs: 12_345,
  }
}

const state = fc.constantFrom(...JOB_STATES)
const text = fc.oneof(fc.string({ unit: 'grapheme' }), fc.string({ unit: 'binary' }), fc.constant('学校\u001b[2J\n'))

const job = fc.record({
  type: text,
  key: fc.option(text),
  state,
  phase: fc.constantFrom(...PHASES),
  wave: fc.nat(3),
  retryCount: fc.nat(3),
  progress: fc.option(
    fc.record({ current: fc.double(), total: fc.double({ min: -1 }), message: text }, { requiredKeys: ['current'] }),
  ),
  error: fc.option(text),
  cancelReason: fc.option(text),
})

/** Any outline: any shape, any names, with and without children that are counted only. */
export const anyOutline: fc.Arbitrary<Outline> = fc
  .array(
    fc.tuple(
      job,
      fc.nat(),
      fc.option(fc.record({ [JOB_STATES[0]]: fc.nat(30_000), completed: fc.nat(9), failed: fc.nat(2) }), { freq: 4 }),
    ),
    {
      minLength: 1,
      maxLength: 60,
    },
  )
  .map((rows) => {
    const jobs = rows.map(([fields, parent], index) =>
      outlineJob({ ...fields, id: `id-${index}`, parentId: index === 0 ? null : `id-${parent % index}` }),
    )
    const hidden = rows.flatMap(([, , counts], index): [string, Partial<StateCounts>][] =>
      counts === null ? [] : [[`id-${index}`, counts]],
    )
    return outlineOf(jobs, Object.fromEntries(hidden))
  })

/** Whether a job has ended. */
export function hasEnded({ state }: OutlineJob): boolean {
  return isTerminal(state)
}
