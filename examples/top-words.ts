/** A word and how often it was seen. */
export type WordCount = [word: string, count: number]

/** What is known about one word: seen `count` times for certain, and at most `offset + total cut` times more. */
interface Entry {
  count: number
  offset: number
}

/**
 * The most frequent words of many partial lists, in bounded memory.
 *
 * Each list names the most frequent words of one part of a text and its `cut`: no word left out of it occurs more often
 * than that in its part. So every word has a certain count and an upper bound, and {@link top} can say whether what it
 * returns is exact. When more than `capacity` words are held, those with the lowest upper bounds are dropped, and the
 * greatest bound among them is remembered as what any unknown word may have.
 */
export class TopWords {
  readonly #capacity: number
  readonly #entries = new Map<string, Entry>()
  #totalCut = 0
  /** Upper bound for any word that is not held. */
  #unheld = 0

  constructor(capacity: number) {
    this.#capacity = capacity
  }

  /** Adds the list of one part. */
  add(words: Iterable<WordCount>, cut = 0): void {
    const unheldBefore = this.#unheld
    this.#totalCut += cut
    this.#unheld += cut
    for (const [word, count] of words) {
      const entry = this.#entries.get(word)
      if (entry === undefined) {
        this.#entries.set(word, { count, offset: unheldBefore - this.#totalCut })
      } else {
        entry.count += count
        entry.offset -= cut
      }
    }
    if (this.#entries.size > 2 * this.#capacity) this.#prune()
  }

  /**
   * The `n` most frequent words, most frequent first, equals by code point. `cut` bounds the count of every other word.
   * Exact: these counts are the true ones, and no word left out has a higher one.
   */
  top(n: number): { words: WordCount[]; cut: number; exact: boolean } {
    const ranked = [...this.#entries].sort(([a, x], [b, y]) => y.count - x.count || (a < b ? -1 : 1))
    const kept = ranked.slice(0, n)
    let cut = this.#unheld
    for (const [, entry] of ranked.slice(n)) cut = Math.max(cut, this.#bound(entry))
    const lowest = kept.at(-1)?.[1].count ?? 0
    const certain = kept.every(([, entry]) => this.#bound(entry) === entry.count)
    return {
      words: kept.map(([word, entry]): WordCount => [word, entry.count]),
      cut,
      exact: certain && (cut === 0 || (kept.length === n && cut <= lowest)),
    }
  }

  #bound(entry: Entry): number {
    return entry.count + entry.offset + this.#totalCut
  }

  #prune(): void {
    const ranked = [...this.#entries].sort(([, x], [, y]) => this.#bound(y) - this.#bound(x))
    for (const [word, entry] of ranked.slice(this.#capacity)) {
      this.#unheld = Math.max(this.#unheld, this.#bound(entry))
      this.#entries.delete(word)
    }
  }
}
