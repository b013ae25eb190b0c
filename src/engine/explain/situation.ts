import type { AnyDefinition } from '../definition/define-job.ts'
import type { Worker } from '../reads/workers.ts'
import type { PausedAncestor } from './ancestors.ts'
import type { Reason } from './explanation.ts'
import type { PlaceInLine } from './line.ts'
import type { Slots } from './slots.ts'
import type { Subject } from './subjects.ts'

/** An open descendant at the end of a parent's chain of waiting, and what it does. */
export interface HoldingLeaf {
  job: Subject
  /** Levels below the parent. */
  levels: number
  reason: Reason
}

/** A job and everything around it that its reasons are told from. */
export interface Situation {
  job: Subject
  /** If its type is known to this process. */
  definition: AnyDefinition | undefined
  workers: readonly Worker[]
  /** What runs under its concurrency key; undefined: nothing, or it has none. */
  slots: Slots | undefined
  /** Undefined where nobody asked. */
  place: PlaceInLine | undefined
  pausedAncestors: readonly PausedAncestor[]
  leaves: readonly HoldingLeaf[]
}

/** Time since an instant, in ms, by the database's clock. */
export function msSince(job: Subject, at: Date | null): number | null {
  return at === null ? null : job.now.getTime() - at.getTime()
}
