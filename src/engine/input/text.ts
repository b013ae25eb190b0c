/** How long a text may be. */
export interface TextLimits {
  /** In UTF-16 units, as JavaScript counts: at most three bytes each. */
  readonly characters: number
  /** In bytes of UTF-8, where that is less than the characters may come to. */
  readonly bytes?: number
  readonly mayBeEmpty?: boolean
}

/*
 * The index rows of PostgreSQL's btree hold 2,704 bytes. The widest here: parent_id, type and key (job_child_key), with
 * 16 + 600 + 2,000 bytes and a few for their heads; then type, concurrency_key and queue (job_limited_ready), with 1,800.
 */

/** Types, queues, ids of assignees. */
export const NAME: TextLimits = { characters: 200 }
/** Keys of jobs. */
export const KEY: TextLimits = { characters: 1000, bytes: 2000 }
/** Who did something: in no index. */
export const ACTOR: TextLimits = { characters: 1000 }
/** Why it was done: in no index. */
export const REASON: TextLimits = { characters: 10_000, mayBeEmpty: true }

/** What is wrong with a text that is to be stored; undefined if nothing. */
export function faultOfText(value: unknown, { characters, bytes, mayBeEmpty = false }: TextLimits): string | undefined {
  if (typeof value !== 'string') return mayBeEmpty ? 'must be a text' : 'must be a text that is not empty'
  if (value === '' && !mayBeEmpty) return 'must be a text that is not empty'
  if (value.length > characters) return `must be at most ${characters} characters`
  if (value.includes('\0')) return 'must not contain NUL characters'
  if (!value.isWellFormed()) return 'contains half of a surrogate pair, which is no character'
  if (bytes !== undefined && value.length * 3 > bytes && Buffer.byteLength(value) > bytes) {
    return `must be at most ${bytes} bytes of UTF-8`
  }
  return undefined
}
