/**
 * A promise that knows whether anybody looks at it, so that a failure which a handler forgot to await neither kills the
 * process nor goes unseen.
 */
export class ObservedPromise<T> extends Promise<T> {
  #observed = false

  // What `then` returns is a plain promise.
  static override get [Symbol.species]() {
    return Promise
  }

  /** Runs `work`. A rejection that nobody observes is no unhandled one. */
  static run<T>(work: () => Promise<T>): ObservedPromise<T> {
    const promise = new ObservedPromise<T>((resolve, reject) => work().then(resolve, reject))
    promise.whenFulfilled(() => {})
    return promise
  }

  get observed(): boolean {
    return this.#observed
  }

  // biome-ignore lint/suspicious/noThenProperty: to see that somebody looks
  override then<A = T, B = never>(
    onfulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onrejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.#observed = true
    return super.then(onfulfilled, onrejected)
  }

  /** Calls `done` when it is fulfilled, without observing it. */
  whenFulfilled(done: () => void): void {
    Promise.prototype.then.call(this, done, () => {})
  }

  /** Waits for it without observing it: what it was rejected with, if nobody looked. */
  async neglectedFailure(): Promise<{ error: unknown } | undefined> {
    const failure = await (Promise.prototype.then.call(
      this,
      () => undefined,
      (error: unknown) => ({ error }),
    ) as Promise<{ error: unknown } | undefined>)
    return this.#observed ? undefined : failure
  }
}
