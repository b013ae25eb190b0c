import { decodeCursor } from '../feed/cursor.ts'
import { treePosition } from '../reads/tree.ts'

/** Where a watcher of a tree is. */
export interface TreePlace {
  /** Feed cursor: what changed after it is still to be told. */
  readonly feed: string
  /** In the middle of a snapshot: the place of the last job told of, as a cursor of the tree's flat list. */
  readonly position?: string
}

/** The opaque text of a place: a feed cursor; in the middle of a snapshot with the position behind a dot. */
export function encodeTreePlace({ feed, position }: TreePlace): string {
  return position === undefined ? feed : `${feed}.${position}`
}

/**
 * Reads what {@link encodeTreePlace} wrote.
 *
 * @throws {InvalidCursorError}
 */
export function decodeTreePlace(text: string): TreePlace {
  const dot = text.indexOf('.')
  const feed = dot < 0 ? text : text.slice(0, dot)
  decodeCursor(feed)
  if (dot < 0) return { feed }
  const position = text.slice(dot + 1)
  treePosition(position)
  return { feed, position }
}
