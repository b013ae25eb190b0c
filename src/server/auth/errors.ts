/** A valid token that gives no role: a top-level error. */
export class NoRoleError extends Error {
  readonly code = 'FORBIDDEN'

  constructor(claim: string) {
    super(`The token gives no role: its claim ${claim} names none of VIEWER, OPERATOR and ADMIN.`)
    this.name = 'NoRoleError'
  }
}

/** The keys that tokens are checked with cannot be had just now: a top-level error. */
export class KeysUnavailableError extends Error {
  readonly code = 'UNAVAILABLE'

  constructor(options: ErrorOptions) {
    super('Tokens cannot be checked just now. Try again.', options)
    this.name = 'KeysUnavailableError'
  }
}
