import type { GraphQLErrorLike } from './errors.ts'

/** A GraphQL operation. */
export interface Operation {
  query: string
  variables: Record<string, unknown>
  operationName?: string | undefined
}

/** One answer, or one frame of a subscription. */
export interface Result {
  data?: Record<string, unknown> | null
  errors?: readonly GraphQLErrorLike[]
}

/** A way to the server. */
export interface Transport {
  /**
   * Runs a subscription once. Ends when the server has completed it or the signal is aborted.
   *
   * @throws {ConnectionLostError} it broke off, or could not begin; it may be tried again
   * @throws {UnauthenticatedError} {@link RequestError}
   */
  run(operation: Operation, signal: AbortSignal): AsyncIterable<Result>
}

/** Why a token is wanted. */
export interface TokenRequest {
  /** The server has refused the last one: get a fresh one, do not take it from a cache. */
  refused: boolean
}

/** An API key or a JWT, or how to get one: called before each connection. */
export type Token = string | ((request: TokenRequest) => string | undefined | Promise<string | undefined>)

/** Gets tokens, and knows whether the last one was refused. */
export class TokenSource {
  readonly #token: Token | undefined
  #refused = false

  constructor(token: Token | undefined) {
    this.#token = token
  }

  get(): string | undefined | Promise<string | undefined> {
    return typeof this.#token === 'function' ? this.#token({ refused: this.#refused }) : this.#token
  }

  /** A token may expire while a stream is open: then its last answer says so. */
  look(errors: readonly GraphQLErrorLike[] | undefined): void {
    if (errors?.some((error) => error.extensions?.code === 'UNAUTHENTICATED')) this.refuse()
  }

  refuse(): void {
    this.#refused = true
  }

  accept(): void {
    this.#refused = false
  }
}
