import type { AttemptStore } from '../engine/context/attempt-store.ts'
import type { ChildRow } from '../engine/context/children.ts'
import { progressOf } from '../engine/context/progress.ts'
import { ValidationError } from '../engine/errors.ts'
import { newJobId } from '../engine/ids.ts'
import type { Json, Progress } from '../engine/job.ts'
import { toJsonText } from '../engine/json.ts'
import type { PreparedJob } from '../engine/prepare.ts'
import type { JobState } from '../engine/states.ts'
import type { GivenChild } from './given-child.ts'

type StoredChild = Omit<ChildRow, 'state'> & { state: JobState; wave: number }

/** An attempt's store in memory: it answers from the children that are given, and records what is written. */
export interface MemoryStore extends AttemptStore {
  /** JSON text of what was saved last; undefined if nothing was. */
  readonly saved: string | undefined
  readonly progressed: readonly Progress[]
  /** Children written by streams, in order. */
  readonly streamed: readonly PreparedJob[]
}

/**
 * @param wave the child set that is read by default.
 * @throws {ValidationError} when a child's payload or result has no JSON form.
 */
export function memoryStore(given: readonly GivenChild[], wave: number): MemoryStore {
  const children = given.map((child, index) => storedChild(child, index, wave))
  const taken = new Map<string, string>()
  for (const child of children) if (child.key !== null) taken.set(nameOf(child.type, child.key), child.id)
  const progressed: Progress[] = []
  const streamed: PreparedJob[] = []
  let saved: string | undefined

  return {
    get saved() {
      return saved
    },
    progressed,
    streamed,
    async saveCheckpoint(checkpoint) {
      saved = checkpoint
    },
    async existingChildren(jobs) {
      const found = new Map<PreparedJob, string>()
      for (const job of jobs) {
        const id = job.key === null ? undefined : taken.get(nameOf(job.type, job.key))
        if (id !== undefined) found.set(job, id)
      }
      return found
    },
    async spawnChunk(chunk) {
      let created = 0
      for (const job of chunk) {
        const name = nameOf(job.type, job.key!)
        if (taken.has(name)) continue
        taken.set(name, job.id)
        streamed.push(job)
        created++
      }
      return { created, existing: chunk.length - created }
    },
    async childrenPage({ after, wave: wanted, type, states, limit }) {
      const page = children.filter(
        (child) =>
          child.id > after &&
          (wanted === null || child.wave === wanted) &&
          (type === null || child.type === type) &&
          (states as readonly JobState[]).includes(child.state),
      )
      return page.slice(0, limit) as ChildRow[]
    },
    async childCounts(wanted) {
      const counts = new Map<JobState, number>()
      for (const child of children) {
        if (wanted === null || child.wave === wanted) counts.set(child.state, (counts.get(child.state) ?? 0) + 1)
      }
      return [...counts].map(([state, count]) => ({ state, count }))
    },
    progress: () => ({
      report: (...figures) => void progressed.push(progressOf(...figures)),
      flush: async () => {},
      close: () => {},
    }),
  }
}

function storedChild(child: GivenChild, index: number, wave: number): StoredChild {
  const json = (name: string, value: unknown): Json => {
    const stored = toJsonText(value, ['children', String(index), name])
    if ('issue' in stored) throw new ValidationError([stored.issue])
    return JSON.parse(stored.text) as Json
  }
  const { state } = child
  return {
    // Made in order: ids of one process grow.
    id: newJobId(),
    type: child.type,
    key: child.key ?? null,
    payload: json('payload', child.payload ?? {}),
    wave: child.wave ?? wave,
    state,
    result: state === 'completed' ? json('result', child.result ?? null) : null,
    error: state === 'failed' ? (child.error?.message ?? 'failed') : null,
    error_code: state === 'failed' ? (child.error?.code ?? 'UNKNOWN') : null,
    cancel_code: state === 'cancelled' ? (child.cancelCode ?? 'requested') : null,
    cancel_reason: state === 'cancelled' ? (child.cancelReason ?? null) : null,
  }
}

function nameOf(type: string, key: string): string {
  return JSON.stringify([type, key])
}
