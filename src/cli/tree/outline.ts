import type { FailureCode, Progress } from '../../engine/job.ts'
import type { StateCounts } from '../../engine/reads/state-counts.ts'
import type { JobState, Phase } from '../../engine/states.ts'

/** What the terminal shows of one job. `id` is a bare UUID. */
export interface OutlineJob {
  readonly id: string
  readonly parentId: string | null
  readonly type: string
  readonly key: string | null
  readonly state: JobState
  readonly phase: Phase
  readonly wave: number
  readonly retryCount: number
  readonly maxRetries: number
  readonly childCount: number
  readonly openChildren: number
  readonly progress: Progress | null
  readonly errorCode: FailureCode | null
  readonly error: string | null
  readonly cancelReason: string | null
}

/** A tree, or as much of a large one as may be worth showing. */
export interface Outline {
  readonly root: OutlineJob
  /** Jobs below the root, parents before their children. Not all of them need be here. */
  readonly jobs: readonly OutlineJob[]
  /** Children of a job by state; absent where all of them are in `jobs`. */
  readonly childCounts: ReadonlyMap<string, StateCounts>
  /** All jobs of the tree by state. */
  readonly counts: StateCounts
  /** Milliseconds from the root's creation to its end, or until now. */
  readonly ageMs: number
}
