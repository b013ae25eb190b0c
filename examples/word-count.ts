import type { FileHandle } from 'node:fs/promises'
import { z } from 'zod'
import { declareJob, defineJob, PermanentError } from '../src/index.ts'
import { countWords, MAX_WORD_BYTES } from './count-words.ts'
import { pathBytes, pathPayload } from './path.ts'
import { withRegularFile } from './regular-file.ts'
import { TopWords } from './top-words.ts'

/** Words that a part reports; the rest of its vocabulary is bounded by `cut`. */
const CANDIDATES = 1000
/** Words held while parts are put together. */
const CAPACITY = 20_000

const wordCounts = z.array(z.tuple([z.string(), z.number()]))

/**
 * Counts the words of a text file, and names the most frequent ones. The file is cut at byte offsets into parts that
 * are counted as children, in parallel; a word that lies across a cut is counted once.
 */
export const wordCount = declareJob({
  type: 'word-count',
  payload: pathPayload.extend({
    /** Size of a part. */
    partBytes: z
      .int()
      .min(1)
      .max(64 * 1024 * 1024)
      .optional(),
    /** How many of the most frequent words to name; default 20. */
    top: z.int().min(0).max(500).optional(),
  }),
  result: z.object({
    words: z.number(),
    bytes: z.number(),
    top: z.array(z.object({ word: z.string(), count: z.number() })),
    /** Whether `top` is proven to be exact. */
    exact: z.boolean(),
  }),
})

/** Counts the words that begin in the bytes from `from` to `to`, exclusive, of a file. */
export const wordCountPart = declareJob({
  type: 'word-count-part',
  payload: pathPayload.extend({ from: z.int().min(0), to: z.int().min(0) }),
  result: z.object({ words: z.number(), bytes: z.number(), top: wordCounts, cut: z.number() }),
})

export const wordCountJob = defineJob(wordCount, {
  async ingest(ctx) {
    const { path, encoding, partBytes = 4 * 1024 * 1024 } = ctx.payload
    const size = await withRegularFile(pathBytes(ctx.payload), async (_file, size) => size)
    const parts = []
    for (let from = 0; from < size; from += partBytes) {
      const to = Math.min(from + partBytes, size)
      parts.push(wordCountPart.with({ path, encoding, from, to }, { key: String(from) }))
    }
    await ctx.spawn(parts)
  },
  async aggregate(ctx) {
    const merged = new TopWords(CAPACITY)
    let words = 0
    let bytes = 0
    for await (const part of ctx.children(wordCountPart)) {
      // A sum with a part missing would be a wrong one.
      if (part.state !== 'completed') {
        throw new PermanentError(`The part at byte ${part.key} is ${part.state}.`, { code: 'CHILD_FAILED' })
      }
      words += part.result.words
      bytes += part.result.bytes
      merged.add(part.result.top, part.result.cut)
    }
    const { words: top, exact } = merged.top(ctx.payload.top ?? 20)
    return { words, bytes, top: top.map(([word, count]) => ({ word, count })), exact }
  },
})

export const wordCountPartJob = defineJob(wordCountPart, {
  async run(ctx) {
    const { from, to } = ctx.payload
    // One byte before, to see whether a word was cut; and room for the end of the last word.
    const start = Math.max(0, from - 1)
    const region = await withRegularFile(pathBytes(ctx.payload), (file) => read(file, start, to + MAX_WORD_BYTES + 1))
    if (region.length < to - start) throw new PermanentError('The file has become shorter.', { code: 'VALIDATION' })
    const { words, counts } = countWords(region, from - start, to - start)
    const all = new TopWords(Number.POSITIVE_INFINITY)
    all.add(counts)
    const { words: top, cut } = all.top(CANDIDATES)
    return { words, bytes: to - from, top, cut }
  },
})

/** The bytes from `start` to `end`, exclusive, or to the end of the file. */
async function read(file: FileHandle, start: number, end: number): Promise<Buffer> {
  const region = Buffer.allocUnsafe(end - start)
  let length = 0
  while (length < region.length) {
    const { bytesRead } = await file.read(region, length, region.length - length, start + length)
    if (bytesRead === 0) break
    length += bytesRead
  }
  return region.subarray(0, length)
}
