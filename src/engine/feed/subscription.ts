import type { FeedBatch } from './batch.ts'

/** What the owner of a subscription is told. */
export interface SubscriptionHooks {
  /** Somebody waits for a batch. */
  wanted(): void
  /** It is over, by whichever side; called once. */
  closed(): void
}

interface Waiting {
  resolve: (result: IteratorResult<FeedBatch, undefined>) => void
  reject: (error: unknown) => void
}

/**
 * The consumer's end of a subscription. It holds no batches but the last one. Written by hand: an async generator that
 * is parked on an `await` would see `return()` only after that.
 */
export class Subscription implements AsyncIterableIterator<FeedBatch, undefined> {
  readonly #hooks: SubscriptionHooks
  readonly #waiting: Waiting[] = []
  #open = true
  #last: FeedBatch | undefined
  #failure: { error: unknown } | undefined

  constructor(hooks: SubscriptionHooks) {
    this.#hooks = hooks
  }

  /** Whether somebody waits for a batch. */
  get parked(): boolean {
    return this.#waiting.length > 0
  }

  get open(): boolean {
    return this.#open
  }

  /** Hands a batch to whoever waits. */
  deliver(batch: FeedBatch): void {
    this.#waiting.shift()?.resolve({ done: false, value: batch })
  }

  /** Ends it, after a last batch if one is given. That one is kept until it is fetched. */
  end(last?: FeedBatch): void {
    if (!this.#open) return
    this.#last = last
    this.#close()
  }

  /** Ends it with an error, which is kept until somebody waits. */
  fail(error: unknown): void {
    if (!this.#open) return
    this.#failure = { error }
    this.#close()
  }

  next(): Promise<IteratorResult<FeedBatch, undefined>> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject })
      if (this.#open) this.#hooks.wanted()
      else this.#drain()
    })
  }

  async return(): Promise<IteratorResult<FeedBatch, undefined>> {
    this.end()
    this.#last = undefined
    this.#failure = undefined
    return { done: true, value: undefined }
  }

  async throw(error: unknown): Promise<IteratorResult<FeedBatch, undefined>> {
    await this.return()
    throw error
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  #close(): void {
    this.#open = false
    this.#drain()
    this.#hooks.closed()
  }

  #drain(): void {
    for (const { resolve, reject } of this.#waiting.splice(0)) {
      const failure = this.#failure
      const last = this.#last
      this.#failure = undefined
      this.#last = undefined
      if (failure !== undefined) reject(failure.error)
      else if (last !== undefined) resolve({ done: false, value: last })
      else resolve({ done: true, value: undefined })
    }
  }
}
