import { EngineError } from '../errors.ts'

/** Which page of a list: from the front (`first`, `after`) or from the back (`last`, `before`). Null is absent. */
export interface PageArgs {
  first?: number | null | undefined
  after?: string | null | undefined
  last?: number | null | undefined
  before?: string | null | undefined
}

/** A checked {@link PageArgs}. */
export interface PageRequest {
  size: number
  /** From the back: the last `size` before `before`. */
  backwards: boolean
  after: string | null
  before: string | null
}

/** A row of a page with the cursor of its place. */
export interface Edge<T> {
  cursor: string
  node: T
}

/** A page of a list in the list's own order. */
export interface Page<T> {
  edges: Edge<T>[]
  hasNextPage: boolean
  hasPreviousPage: boolean
}

/** A page size that is not allowed. */
export class PageSizeError extends EngineError {
  readonly code = 'BAD_REQUEST'
}

/** Page sizes of ordinary lists. */
export const PAGE_LIMITS = { max: 100, default: 20 }

/**
 * Checks page arguments.
 *
 * @throws {PageSizeError} size out of range, or both `first` and `last`
 */
export function pageRequest(args: PageArgs, limits = PAGE_LIMITS): PageRequest {
  const first = args.first ?? undefined
  const last = args.last ?? undefined
  if (first !== undefined && last !== undefined) throw new PageSizeError('Give `first` or `last`, not both.')
  return {
    size: checkedSize(last === undefined ? 'first' : 'last', last ?? first ?? limits.default, limits.max),
    backwards: last !== undefined,
    after: args.after ?? null,
    before: args.before ?? null,
  }
}

/**
 * A size within 1 … max.
 *
 * @throws {PageSizeError} otherwise
 */
export function checkedSize(name: string, size: number, max: number): number {
  if (Number.isInteger(size) && size >= 1 && size <= max) return size
  throw new PageSizeError(`\`${name}\` must be from 1 to ${max}, not ${size}.`)
}

/**
 * The page that `rows` make: up to `size + 1` rows as they were read, nearest first, so that one too many tells that
 * there are more. At the other end a given cursor tells the same: its row lies outside the page.
 */
export function pageOf<Row, T>(rows: readonly Row[], request: PageRequest, edge: (row: Row) => Edge<T>): Page<T> {
  const more = rows.length > request.size
  const edges = rows.slice(0, request.size).map(edge)
  if (request.backwards) edges.reverse()
  return {
    edges,
    hasNextPage: request.backwards ? request.before !== null : more || request.before !== null,
    hasPreviousPage: request.backwards ? more || request.after !== null : request.after !== null,
  }
}
