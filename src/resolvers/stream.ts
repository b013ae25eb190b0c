import type { Context } from './context.ts'

/** Reason of a stream's stop signal when the server stops: a last frame may still be given. */
export const CLOSING = 'closing'

const RETURNED = 'returned'
const DONE = { done: true, value: undefined } as const

/**
 * The source of a subscription. A generator that is parked on an `await` never sees that the client has left, so that
 * this iterator tells it by a signal, and answers the client at once. What an operation has read before is forgotten
 * with each frame: frame n shows state n.
 */
export class Stream<T> implements AsyncIterableIterator<T> {
  readonly #context: Context
  readonly #source: AsyncGenerator<T>
  readonly #stop = new AbortController()
  readonly #close = () => this.#stop.abort(CLOSING)
  readonly #expire = () => this.#stop.abort(this.#context.expired?.reason)
  #ended = false

  /**
   * `source` ends when its signal is aborted; when the reason is {@link CLOSING} it may give a last frame. When what the
   * caller showed is over, the stream fails.
   */
  constructor(context: Context, source: (stop: AbortSignal) => AsyncGenerator<T>) {
    this.#context = context
    this.#source = source(this.#stop.signal)
    if (context.closing.aborted) this.#close()
    else context.closing.addEventListener('abort', this.#close, { once: true })
    context.expired?.addEventListener('abort', this.#expire, { once: true })
  }

  async next(): Promise<IteratorResult<T>> {
    if (this.#ended) return DONE
    try {
      const result = await this.#source.next()
      const { reason } = this.#stop.signal
      if (reason instanceof Error) throw reason
      if (result.done || reason === RETURNED) return this.#end()
      this.#context.loaders?.clear()
      return result
    } catch (error) {
      this.#end()
      this.#source.return(undefined).catch(() => {})
      throw error
    }
  }

  async return(): Promise<IteratorResult<T>> {
    this.#stop.abort(RETURNED)
    // Queued behind the parked `next`, which the signal ends.
    this.#source.return(undefined).catch(() => {})
    return this.#end()
  }

  async throw(error: unknown): Promise<IteratorResult<T>> {
    await this.return()
    throw error
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  #end(): IteratorReturnResult<undefined> {
    this.#ended = true
    this.#context.closing.removeEventListener('abort', this.#close)
    this.#context.expired?.removeEventListener('abort', this.#expire)
    return DONE
  }
}
