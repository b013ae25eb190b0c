/** The schema in the database is newer than this program: it must not touch tables it does not know. */
export class SchemaTooNewError extends Error {
  readonly code = 'SCHEMA_TOO_NEW'
  /** Version of the schema in the database. */
  readonly found: number
  /** Newest version that this program knows. */
  readonly known: number

  constructor(schema: string, found: number, known: number) {
    super(
      `The schema "${schema}" is at version ${found}, but this program knows versions up to ${known} only. ` +
        'Install the release that made it, or a later one.',
    )
    this.name = 'SchemaTooNewError'
    this.found = found
    this.known = known
  }
}

/** The schema in the database is older than this program needs, or not there (version 0). */
export class SchemaTooOldError extends Error {
  readonly code = 'SCHEMA_TOO_OLD'
  /** Version of the schema in the database. */
  readonly found: number
  /** Version that this program needs. */
  readonly needed: number

  constructor(schema: string, found: number, needed: number) {
    const state = found === 0 ? 'has not been set up' : `is at version ${found}`
    super(`The schema "${schema}" ${state}, but this program needs version ${needed}. Run: coppice migrate`)
    this.name = 'SchemaTooOldError'
    this.found = found
    this.needed = needed
  }
}

/** A migration file is not the one that was applied: applied files must never change. */
export class MigrationChangedError extends Error {
  readonly code = 'MIGRATION_CHANGED'
  /** Names of the files, such as `0001_jobs`. */
  readonly migrations: readonly string[]

  constructor(schema: string, migrations: readonly string[]) {
    super(
      `The schema "${schema}" was made by other migrations than those of this program: ${migrations.join(', ')} ` +
        'changed after it was applied.',
    )
    this.name = 'MigrationChangedError'
    this.migrations = migrations
  }
}

/** The folder of migrations is not what it should be; a mistake in the program, not in the database. */
export class MigrationFilesError extends Error {
  readonly code = 'MIGRATION_FILES'

  constructor(message: string) {
    super(message)
    this.name = 'MigrationFilesError'
  }
}

/** The statements of a migration failed; nothing of it, nor of those before it in the same run, was kept. */
export class MigrationFailedError extends Error {
  readonly code = 'MIGRATION_FAILED'
  /** Name of the file, such as `0001_jobs`. */
  readonly migration: string

  constructor(migration: string, cause: Error) {
    super(`Migration ${migration} failed and was rolled back: ${cause.message}`, { cause })
    this.name = 'MigrationFailedError'
    this.migration = migration
  }
}

/** The server is older than the oldest PostgreSQL that is supported. */
export class ServerTooOldError extends Error {
  readonly code = 'SERVER_TOO_OLD'

  constructor(found: string, oldest: number) {
    super(`The server runs PostgreSQL ${found}; version ${oldest} or later is needed.`)
    this.name = 'ServerTooOldError'
  }
}

/** A name that cannot be the name of Coppice's schema. */
export class SchemaNameError extends Error {
  readonly code = 'SCHEMA_NAME'

  constructor(name: string) {
    super(
      `${JSON.stringify(name)} cannot be the name of the schema: letters, digits and underscores, not beginning with a ` +
        'digit nor with pg_, at most 63.',
    )
    this.name = 'SchemaNameError'
  }
}
