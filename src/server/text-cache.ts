/**
 * Keeps values by a text until texts of a certain length in all are kept, the least used going first. What is kept for a
 * document is a hundred times its size and more, so that a number of documents would be no bound at all.
 */
export class TextCache<T> {
  readonly #kept = new Map<string, T>()
  readonly #most: number
  #length = 0

  /** @param most characters of all texts together. */
  constructor(most: number) {
    this.#most = most
  }

  /** Characters kept. */
  get length(): number {
    return this.#length
  }

  get(text: string): T | undefined {
    const value = this.#kept.get(text)
    if (value === undefined) return undefined
    // Last in, last out.
    this.#kept.delete(text)
    this.#kept.set(text, value)
    return value
  }

  set(text: string, value: T): void {
    this.#remove(text)
    if (text.length > this.#most) return
    this.#kept.set(text, value)
    this.#length += text.length
    for (const oldest of this.#kept.keys()) {
      if (this.#length <= this.#most) return
      this.#remove(oldest)
    }
  }

  #remove(text: string): void {
    if (this.#kept.delete(text)) this.#length -= text.length
  }
}
