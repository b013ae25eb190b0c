/** An error of the API, as GraphQL gives it. */
export interface GraphQLErrorLike {
  message: string
  path?: readonly (string | number)[]
  extensions?: { code?: string; errorId?: string; [key: string]: unknown }
}

/** What the client throws; `code` is stable. */
export abstract class ClientError extends Error {
  abstract readonly code: string

  constructor(message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = new.target.name
  }
}

/** The connection broke, could not be made, or the server cannot answer now. Subscriptions come back by themselves. */
export class ConnectionLostError extends ClientError {
  readonly code = 'CONNECTION_LOST'
}

/** The server knows no such key or token, a fresh one from the callback included. */
export class UnauthenticatedError extends ClientError {
  readonly code = 'UNAUTHENTICATED'
}

/** The server refuses the request, and would again: `code` is that of its first error, such as `BAD_REQUEST`. */
export class RequestError extends ClientError {
  readonly code: string
  readonly errors: readonly GraphQLErrorLike[]

  constructor(errors: readonly GraphQLErrorLike[]) {
    super(errors.map((error) => error.message).join('; '))
    this.errors = errors
    this.code = errors[0]?.extensions?.code ?? 'UNKNOWN'
  }
}

/** What to throw for the errors of an answer. */
export function errorOf(errors: readonly GraphQLErrorLike[]): ClientError {
  const codes = errors.map((error) => error.extensions?.code)
  const message = errors.map((error) => error.message).join('; ')
  if (codes.includes('UNAUTHENTICATED')) return new UnauthenticatedError(message)
  if (codes.includes('UNAVAILABLE')) return new ConnectionLostError(message)
  return new RequestError(errors)
}
