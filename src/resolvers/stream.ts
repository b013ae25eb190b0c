import { Stoppable } from '../engine/watch/stoppable.ts'
import type { Context } from './context.ts'

/** Reason of a stream's stop signal when the server stops: a last frame may still be given. */
export const CLOSING = 'closing'

/**
 * The source of a subscription. What an operation has read before is forgotten with each frame: frame n shows state n.
 */
export class Stream<T> extends Stoppable<T> {
  readonly #context: Context
  readonly #close = () => this.stop(CLOSING)
  readonly #expire = () => this.stop(this.#context.expired?.reason)

  /**
   * `source` ends when its signal is aborted; when the reason is {@link CLOSING} it may give a last frame. When what the
   * caller showed is over, the stream fails.
   */
  constructor(context: Context, source: (stop: AbortSignal) => AsyncGenerator<T>) {
    super(source)
    this.#context = context
    if (context.closing.aborted) this.#close()
    else context.closing.addEventListener('abort', this.#close, { once: true })
    context.expired?.addEventListener('abort', this.#expire, { once: true })
  }

  override async next(): Promise<IteratorResult<T, undefined>> {
    const result = await super.next()
    if (!result.done) this.#context.loaders?.clear()
    return result
  }

  protected override ended(): void {
    this.#context.closing.removeEventListener('abort', this.#close)
    this.#context.expired?.removeEventListener('abort', this.#expire)
  }
}
