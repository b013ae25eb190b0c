import type { AbortCode } from '../context/context.ts'

const WHY: Record<AbortCode, string> = {
  CANCELLED: 'The job was cancelled or deleted.',
  TIMEOUT: 'The attempt took longer than it may.',
  LEASE_LOST: 'This attempt no longer holds its job.',
  SHUTDOWN: 'The worker shuts down.',
}

/** The reason of an attempt's aborted signal. */
export class AttemptAbortedError extends Error {
  readonly code: AbortCode

  constructor(code: AbortCode) {
    super(WHY[code])
    this.name = 'AttemptAbortedError'
    this.code = code
  }
}

/** An AbortController whose signal is made when somebody asks for it: most attempts end before anybody does. */
export class LazyAbort {
  #controller: AbortController | undefined
  #reason: AttemptAbortedError | undefined

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController()
      if (this.#reason) this.#controller.abort(this.#reason)
    }
    return this.#controller.signal
  }

  get aborted(): boolean {
    return this.#reason !== undefined
  }

  throwIfAborted(): void {
    if (this.#reason) throw this.#reason
  }

  abort(code: AbortCode): void {
    if (this.#reason) return
    this.#reason = new AttemptAbortedError(code)
    this.#controller?.abort(this.#reason)
  }
}
