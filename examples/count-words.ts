import type { WordCount } from './top-words.ts'

/** Longer words are counted, but are not candidates for the most frequent ones. In bytes. */
export const MAX_WORD_BYTES = 100

/** What one part of a text holds. */
export interface PartCount {
  /** Words that begin in the part. */
  words: number
  /** Each word of at most {@link MAX_WORD_BYTES} bytes, and how often it begins in the part. */
  counts: Iterable<WordCount>
}

/**
 * Counts the words that begin in `bytes[from, to)`. A word is a longest run of bytes that are not ASCII white space
 * (what `wc -w` and Python's `bytes.split()` say). A word that began before `from` belongs to the part before, so the
 * byte at `from - 1` is looked at; one that goes on past `to` is read to its end, so `bytes` should hold
 * {@link MAX_WORD_BYTES} more than the part. Thus the parts of a text add up, wherever it is cut.
 *
 * Bytes that are not UTF-8, and NUL, show as U+FFFD; words that differ in nothing else are counted as one.
 */
export function countWords(bytes: Buffer, from: number, to: number): PartCount {
  const counts = new Map<string, number>()
  let words = 0
  let at = from
  if (from > 0 && !isSpace(bytes[from - 1])) while (at < to && !isSpace(bytes[at])) at++
  while (at < to) {
    if (isSpace(bytes[at])) {
      at++
      continue
    }
    const start = at
    while (at < bytes.length && !isSpace(bytes[at])) at++
    words++
    if (at - start > MAX_WORD_BYTES) continue
    const word = bytes.toString('utf8', start, at).replaceAll('\0', '\uFFFD')
    counts.set(word, (counts.get(word) ?? 0) + 1)
  }
  return { words, counts }
}

/** Space, tab, line feed, vertical tab, form feed, carriage return. */
function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || (byte !== undefined && byte >= 0x09 && byte <= 0x0d)
}
