import type { Database } from '../../db/database.ts'
import { type Tx, transaction } from '../../db/transaction.ts'
import type { JobRegistry } from '../definition/job-registry.ts'
import { liveWorkers, type Worker } from '../reads/workers.ts'
import { isTerminal, type JobState } from '../states.ts'
import { findPausedAncestors, type PausedAncestor } from './ancestors.ts'
import type { Explanation, Reason } from './explanation.ts'
import { finished } from './finished.ts'
import { archived, assigneeNotActive, failing, orphaned, paused, pausedAncestor } from './held.ts'
import { findLeaves, type Leaf } from './leaves.ts'
import { findPlaces, type PlaceInLine } from './line.ts'
import { concurrencyLimit, inLine, noWorker, scheduled } from './queued.ts'
import { running } from './running.ts'
import type { HoldingLeaf, Situation } from './situation.ts'
import { findSlots, type Slots, slotName } from './slots.ts'
import { readSubjects, type Subject, stateBelow } from './subjects.ts'
import { openChildren, settled } from './waiting.ts'

/** What the process that explains knows. */
export interface ExplainContext {
  /** Concurrency limits and time limits of types are known where the types are. */
  jobs: Pick<JobRegistry, 'definition'>
}

/**
 * Why each of these jobs does not move, or what it does instead: the decisive reason first, never none. Absent where
 * there is no such job. One snapshot, a constant number of statements for any number of jobs, and a bounded cost for
 * each: children are counted up to 1,000, descendants followed a few to a level.
 */
export async function explainJobs(
  db: Database,
  ids: readonly string[],
  context: ExplainContext,
): Promise<Map<string, Explanation[]>> {
  if (ids.length === 0) return new Map()
  const surroundings = await transaction(db, (tx) => readSurroundings(tx, ids), { repeatableRead: true })
  const asked = ids.flatMap((id) => surroundings.subjects.get(id) ?? [])
  return new Map(asked.map((job) => [job.id, reasonsOf(situationOf(job, surroundings, context)).map(withoutClause)]))
}

/** Everything that was read. */
interface Surroundings {
  subjects: Map<string, Subject>
  leaves: Map<string, Leaf[]>
  ancestors: Map<string, PausedAncestor[]>
  workers: Worker[]
  slots: Map<string, Slots>
  places: Map<string, PlaceInLine>
}

async function readSurroundings(tx: Tx, ids: readonly string[]): Promise<Surroundings> {
  const leaves = await findLeaves(tx, ids)
  const held = [...leaves.values()].flatMap((list) => list.map(({ id }) => id))
  const subjects = await readSubjects(tx, [...new Set([...ids, ...held])])
  const active = ids.flatMap((id) => subjects.get(id) ?? []).filter((job) => !isTerminal(job.state as JobState))
  const queued = [...subjects.values()].filter((job) => job.state === 'queued')
  return {
    subjects,
    leaves,
    ancestors: await findPausedAncestors(tx, idsOf(active)),
    workers: await liveWorkers(tx),
    slots: await findSlots(tx, queued),
    places: await findPlaces(tx, idsOf(active.filter((job) => job.state === 'queued'))),
  }
}

function situationOf(job: Subject, read: Surroundings, { jobs }: ExplainContext): Situation {
  const alone = (one: Subject): Situation => ({
    job: one,
    definition: jobs.definition(one.type),
    workers: read.workers,
    slots: one.concurrency_key === null ? undefined : read.slots.get(slotName(one.type, one.concurrency_key)),
    place: undefined,
    pausedAncestors: [],
    leaves: [],
  })
  const leaves = (read.leaves.get(job.id) ?? []).map(({ id, levels }): HoldingLeaf => {
    const leaf = read.subjects.get(id)!
    return { job: leaf, levels, reason: reasonsOf(alone(leaf))[0]! }
  })
  return { ...alone(job), place: read.places.get(job.id), pausedAncestors: read.ancestors.get(job.id) ?? [], leaves }
}

/**
 * The reasons in order. First what ends the job or was done to it by hand, then what it waits for: of several, first what
 * no clock ends.
 */
function reasonsOf(situation: Situation): Reason[] {
  const { job } = situation
  if (isTerminal(job.state as JobState)) return [finished(job)]
  const reasons = [orphaned(situation), failing(situation), paused(situation), ...reasonsOfState(situation)]
  return [...reasons, pausedAncestor(situation)].filter((reason) => reason !== undefined)
}

function reasonsOfState(situation: Situation): (Reason | undefined)[] {
  const { job } = situation
  // What a paused job would do if it were not, is no reason.
  const moving = job.state !== 'paused' && job.failing_child_id === null
  switch (stateBelow(job)) {
    case 'running':
      return [running(situation)]
    case 'waiting': {
      const held = [archived(situation), openChildren(situation), assigneeNotActive(situation)]
      return isNone(held) && moving ? [settled(situation)] : held
    }
    default: {
      const due = job.run_at <= job.now
      const held = [
        archived(situation),
        assigneeNotActive(situation),
        noWorker(situation),
        scheduled(situation),
        due && moving ? concurrencyLimit(situation) : undefined,
      ]
      return isNone(held) && moving ? [inLine(situation)] : held
    }
  }
}

function isNone(reasons: readonly (Reason | undefined)[]): boolean {
  return reasons.every((reason) => reason === undefined)
}

function withoutClause({ clause: _, ...explanation }: Reason): Explanation {
  return explanation
}

function idsOf(jobs: readonly Subject[]): string[] {
  return jobs.map(({ id }) => id)
}
