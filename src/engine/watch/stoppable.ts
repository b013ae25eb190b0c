const DONE = { done: true, value: undefined } as const

/**
 * An async iterator whose consumer may leave at any moment. A generator that is parked on an `await` never sees that, so
 * that this iterator tells it by a signal, and answers the consumer at once.
 */
export class Stoppable<T> implements AsyncIterableIterator<T, undefined> {
  readonly #source: AsyncGenerator<T, unknown>
  readonly #stop = new AbortController()
  readonly #signal: AbortSignal | undefined
  readonly #leave = () => void this.return()
  #over = false
  /** The error that it was stopped with. */
  #grounds: Error | undefined

  /**
   * @param source ends when its signal is aborted; an error that it throws after that is none.
   * @param signal ends the iterator as `return()` does.
   */
  constructor(source: (stop: AbortSignal) => AsyncGenerator<T, unknown>, signal?: AbortSignal) {
    this.#source = source(this.#stop.signal)
    this.#signal = signal
    if (signal?.aborted) this.#leave()
    else signal?.addEventListener('abort', this.#leave, { once: true })
  }

  async next(): Promise<IteratorResult<T, undefined>> {
    if (this.#over) return DONE
    const { signal } = this.#stop
    let result: IteratorResult<T, unknown> | undefined
    let failure: unknown
    try {
      result = await this.#source.next()
    } catch (error) {
      if (!signal.aborted) failure = error
    }
    if (!this.#over) failure ??= this.#grounds
    if (failure === undefined && result !== undefined && !result.done && !this.#over) return result
    this.#over = true
    this.#source.return(undefined).catch(() => {})
    this.#end()
    if (failure !== undefined) throw failure
    return DONE
  }

  /**
   * Lets the source come to its end by itself: it may give a last value. With an error as the reason, that is thrown
   * instead.
   */
  stop(reason: unknown): void {
    if (reason instanceof Error && !this.#stop.signal.aborted) this.#grounds = reason
    this.#stop.abort(reason)
  }

  async return(): Promise<IteratorResult<T, undefined>> {
    this.#over = true
    this.#stop.abort()
    // Queued behind the parked `next`, which the signal ends.
    this.#source.return(undefined).catch(() => {})
    this.#end()
    return DONE
  }

  async throw(error: unknown): Promise<IteratorResult<T, undefined>> {
    await this.return()
    throw error
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  /** Called when it is over, by whichever side; may be called again. */
  protected ended(): void {}

  #end(): void {
    this.#over = true
    this.#signal?.removeEventListener('abort', this.#leave)
    this.ended()
  }
}
