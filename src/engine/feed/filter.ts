import { parseJobId } from '../ids.ts'
import type { JobState } from '../states.ts'
import type { JobEvent, JobEventKind } from './event.ts'

/** Which events: every given field must hold; a list means any of, so an empty one matches nothing. */
export interface JobEventFilter {
  /** Of this tree: the id of its root, as `JB_…` or a bare UUID, like all ids here. */
  treeId?: string | null | undefined
  /** Of these jobs. */
  jobIds?: readonly string[] | null | undefined
  /** True: of roots only; false: of children only. */
  roots?: boolean | null | undefined
  /** Of jobs of these types. */
  types?: readonly string[] | null | undefined
  /** Of these kinds. */
  kinds?: readonly JobEventKind[] | null | undefined
  /** Into these states. */
  to?: readonly JobState[] | null | undefined
}

/** A filter made ready: for events in memory, and as parameters for {@link filterSql}. Both agree. */
export interface EventMatcher {
  matches(event: JobEvent): boolean
  readonly parameters: readonly unknown[]
}

/**
 * Checks a filter and makes it ready.
 *
 * @throws {ValidationError} for an id that is none.
 */
export function eventMatcher(filter: JobEventFilter = {}): EventMatcher {
  const treeId = filter.treeId == null ? null : parseJobId(filter.treeId)
  const roots = filter.roots ?? null
  const jobIds = setOf(filter.jobIds?.map(parseJobId))
  const types = setOf(filter.types)
  const kinds = setOf(filter.kinds)
  const to = setOf(filter.to)
  return {
    matches: (event) =>
      (treeId === null || event.treeId === treeId) &&
      (jobIds === null || jobIds.has(event.jobId)) &&
      (roots === null || (event.parentId === null) === roots) &&
      (types === null || types.has(event.type)) &&
      (kinds === null || kinds.has(event.kind)) &&
      (to === null || (event.to !== null && to.has(event.to))),
    parameters: [treeId, listOf(jobIds), roots, listOf(types), listOf(kinds), listOf(to)],
  }
}

/** The condition on a row `e` of the log, with {@link EventMatcher.parameters} from parameter number `first` on. */
export function filterSql(first: number): string {
  const given = (offset: number, type: string, condition: (parameter: string) => string) => {
    const parameter = `$${first + offset}::${type}`
    return `(${parameter} is null or ${condition(parameter)})`
  }
  return [
    given(0, 'uuid', (id) => `e.tree_id = ${id}`),
    given(1, 'uuid[]', (ids) => `e.job_id = any (${ids})`),
    given(2, 'boolean', (roots) => `(e.parent_id is null) = ${roots}`),
    given(3, 'text[]', (types) => `e.type = any (${types})`),
    given(4, 'text[]', (kinds) => `e.kind = any (${kinds})`),
    given(5, 'text[]', (states) => `e."to" = any (${states})`),
  ].join(' and ')
}

function setOf<T>(list: readonly T[] | null | undefined): ReadonlySet<T> | null {
  return list == null ? null : new Set(list)
}

/** PostgreSQL refuses text with NUL characters; nothing stored has any, so that such a text matches nothing anyway. */
function listOf(set: ReadonlySet<string> | null): string[] | null {
  return set === null ? null : [...set].filter((text) => !text.includes('\0'))
}
