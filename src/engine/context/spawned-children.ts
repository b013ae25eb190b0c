import type { PreparedJob } from '../prepare.ts'

/** The children that one phase spawned: of those with the same type and key, the first. */
export class SpawnedChildren {
  readonly list: PreparedJob[] = []
  readonly #byKey = new Map<string, PreparedJob>()

  /** Adds a child; returns the one that it is the same as, if that was added before. */
  add(child: PreparedJob): PreparedJob {
    const key = child.key === null ? undefined : JSON.stringify([child.type, child.key])
    const earlier = key === undefined ? undefined : this.#byKey.get(key)
    if (earlier) return earlier
    if (key !== undefined) this.#byKey.set(key, child)
    this.list.push(child)
    return child
  }
}
