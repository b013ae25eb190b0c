/** Wakes one that waits. Rung while nobody waits, it is heard by the next wait, at once. */
export class Bell {
  #rung = false
  #wake: (() => void) | null = null

  ring(): void {
    this.#rung = true
    this.#wake?.()
  }

  /** Forgets that it was rung; true if it was. */
  reset(): boolean {
    const rung = this.#rung
    this.#rung = false
    return rung
  }

  /** Resolves when it is rung, or after `ms`; true if it was rung. One waits at a time. */
  async wait(ms: number): Promise<boolean> {
    if (!this.#rung) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms)
        this.#wake = () => {
          clearTimeout(timer)
          resolve()
        }
      })
      this.#wake = null
    }
    return this.reset()
  }
}
