/** The embedded server cannot run on this machine at all; a server has to be named with DATABASE_URL. */
export class EmbeddedUnavailableError extends Error {
  readonly code = 'EMBEDDED_UNAVAILABLE'

  constructor(reason: string) {
    super(`The embedded PostgreSQL cannot be used: ${reason}. Set DATABASE_URL to a PostgreSQL server (14 to 18).`)
    this.name = 'EmbeddedUnavailableError'
  }
}

/** The data folder is there, but this program must not or cannot use it; the message says what to do. */
export class EmbeddedDataError extends Error {
  readonly code = 'EMBEDDED_DATA'

  constructor(message: string) {
    super(message)
    this.name = 'EmbeddedDataError'
  }
}

/** The data folder was made by another major version of PostgreSQL than the one at hand. */
export class EmbeddedDataVersionError extends Error {
  readonly code = 'EMBEDDED_DATA_VERSION'

  constructor(folder: string, found: string, expected: string) {
    super(
      `The data in ${folder} was made by PostgreSQL ${found}, but this program brings PostgreSQL ${expected}. ` +
        `Dump it with version ${found} and load it again, or choose another data folder (COPPICE_DATA_DIR).`,
    )
    this.name = 'EmbeddedDataVersionError'
  }
}

/** The embedded server was tried and did not come up; the message ends with what the server wrote. */
export class EmbeddedStartError extends Error {
  readonly code = 'EMBEDDED_START'

  constructor(message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = 'EmbeddedStartError'
  }
}
