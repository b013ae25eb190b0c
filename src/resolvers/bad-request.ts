/** The document, a variable, an id, a cursor or a page size makes no sense: a top-level error. */
export class BadRequestError extends Error {
  readonly code = 'BAD_REQUEST'

  constructor(message: string) {
    super(message)
    this.name = 'BadRequestError'
  }
}
