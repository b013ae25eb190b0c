import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { countWords, MAX_WORD_BYTES } from '../../examples/count-words.ts'
import { TopWords, type WordCount } from '../../examples/top-words.ts'

/** What a person would write who need not cut anything: all words of a text. */
function wordsOf(text: Buffer): Buffer[] {
  const words: Buffer[] = []
  let word: number[] = []
  for (const byte of [...text, 0x20]) {
    if (![0x20, 0x09, 0x0a, 0x0b, 0x0c, 0x0d].includes(byte)) word.push(byte)
    else if (word.length > 0) {
      words.push(Buffer.from(word))
      word = []
    }
  }
  return words
}

function countAll(words: Iterable<string>): Map<string, number> {
  const counts = new Map<string, number>()
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1)
  return counts
}

const bytes = fc.oneof(
  fc
    .array(fc.constantFrom('a', 'bb', ' ', '\n', '\t', 'é', '学校', 'x'.repeat(60)), { maxLength: 60 })
    .map((parts) => Buffer.from(parts.join(''))),
  fc.uint8Array({ maxLength: 300 }).map((array) => Buffer.from(array)),
)

describe('countWords', () => {
  test('counts every word once, wherever a text is cut', () => {
    fc.assert(
      fc.property(bytes, fc.integer({ min: 1, max: 50 }), (text, size) => {
        let words = 0
        const counts = new Map<string, number>()
        for (let from = 0; from < text.length; from += size) {
          const to = Math.min(from + size, text.length)
          // Each part sees no more of the text than the job of that part reads.
          const start = Math.max(0, from - 1)
          const region = text.subarray(start, to + MAX_WORD_BYTES + 1)
          const part = countWords(region, from - start, to - start)
          words += part.words
          for (const [word, count] of part.counts) counts.set(word, (counts.get(word) ?? 0) + count)
        }
        const expected = wordsOf(text)
        expect(words).toBe(expected.length)
        const short = expected.filter((word) => word.length <= MAX_WORD_BYTES)
        expect(counts).toEqual(countAll(short.map((word) => word.toString().replaceAll('\0', '\uFFFD'))))
      }),
      { numRuns: 2000 },
    )
  })

  test('counts a word that fills several parts in the first of them, and names no word that is too long', () => {
    const text = Buffer.from(`a ${'x'.repeat(1000)} b`)
    expect(countWords(text.subarray(0, 50 + MAX_WORD_BYTES + 1), 0, 50)).toEqual({
      words: 2,
      counts: new Map([['a', 1]]),
    })
    expect(countWords(text.subarray(49, 100 + MAX_WORD_BYTES + 1), 1, 51)).toEqual({ words: 0, counts: new Map() })
    const last = countWords(text.subarray(999), 1, text.length - 999)
    expect(last).toEqual({ words: 1, counts: new Map([['b', 1]]) })
  })
})

describe('TopWords', () => {
  const part = fc.dictionary(fc.constantFrom(...'abcdefghijklmnopqrst'), fc.integer({ min: 1, max: 30 }))

  test('bounds are true for every word, and what it calls exact is', () => {
    let exactSeen = 0
    let inexactSeen = 0
    fc.assert(
      fc.property(
        fc.array(part, { maxLength: 12 }),
        fc.integer({ min: 1, max: 12 }),
        fc.nat(6),
        fc.integer({ min: 1, max: 8 }),
        (parts, candidates, n, capacity) => {
          const merged = new TopWords(capacity)
          const truth = new Map<string, number>()
          for (const counts of parts) {
            const all = new TopWords(Number.POSITIVE_INFINITY)
            all.add(Object.entries(counts))
            const { words, cut } = all.top(candidates)
            merged.add(words, cut)
            for (const [word, count] of Object.entries(counts)) truth.set(word, (truth.get(word) ?? 0) + count)
          }
          const { words, cut, exact } = merged.top(n)
          const named = new Set(words.map(([word]) => word))
          for (const [word, count] of words) expect(count).toBeLessThanOrEqual(truth.get(word)!)
          for (const [word, count] of truth) if (!named.has(word)) expect(count).toBeLessThanOrEqual(cut)
          if (!exact) {
            inexactSeen++
            return
          }
          exactSeen++
          const ranked = [...truth].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)) as WordCount[]
          expect(words.map(([, count]) => count)).toEqual(ranked.slice(0, n).map(([, count]) => count))
          for (const [word, count] of words) expect(truth.get(word)).toBe(count)
        },
      ),
      { numRuns: 3000 },
    )
    // Both kinds came up, so neither half of the property is empty.
    expect(exactSeen).toBeGreaterThan(100)
    expect(inexactSeen).toBeGreaterThan(100)
  })
})
