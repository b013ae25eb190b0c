import { createHash } from 'node:crypto'
import pRetry from 'p-retry'
import pg from 'pg'
import { errorCodeOf, isRetryableConflict } from './connection-errors.ts'
import {
  MigrationChangedError,
  MigrationFailedError,
  SchemaTooNewError,
  SchemaTooOldError,
  ServerTooOldError,
} from './migration-errors.ts'
import { type MigrationFile, readMigrations } from './migration-files.ts'
import { quoteSchemaName } from './schema-name.ts'

/** What `migrate` works on. */
export interface MigrateOptions {
  readonly connectionString: string
  /** Made if it is not there. */
  readonly schema: string
  /** Folder of the migrations; default the package's own. */
  readonly directory?: string
  /** Gets a line for each migration applied and each time it has to wait. */
  readonly log?: (line: string) => void
  /** How long to go on trying against locks of others, in milliseconds; default two minutes. */
  readonly deadlineMs?: number
}

/** Versions before and after, and the names of what was applied in between. */
export interface MigrationResult {
  readonly from: number
  readonly to: number
  readonly applied: readonly string[]
}

/** Anything of `pg` that runs a query: a client or a pool. */
export type Querying = Pick<pg.Pool, 'query'> | Pick<pg.ClientBase, 'query'>

const OLDEST_SERVER = 14
/** First key of the advisory lock of migrations; the second is the schema's. The bytes spell "copm". */
const MIGRATION_LOCK = 0x636f706d
/** The server is there but takes no connections at the moment: starting up, shutting down, full. */
const NOT_NOW = new Set(['57P01', '57P03', '53300'])

/**
 * Brings the schema to the newest version: all missing migrations in one transaction, under a lock that any number of
 * processes may ask for at once. No setting or lock outlives the transaction, so a pooler may be in between.
 * @throws SchemaTooNewError, MigrationChangedError, MigrationFailedError, MigrationFilesError, SchemaNameError,
 *   ServerTooOldError; or the database's own error when locks of others outlast the deadline
 */
export async function migrate(options: MigrateOptions): Promise<MigrationResult> {
  const { connectionString, schema, directory, log = () => {}, deadlineMs = 120_000 } = options
  quoteSchemaName(schema)
  const files = await readMigrations(directory)
  const started = performance.now()
  return await pRetry(
    async () => {
      const client = new pg.Client({ connectionString, application_name: 'coppice migrate' })
      client.on('error', () => {})
      await client.connect()
      try {
        await assertServerFits(client)
        return await migrateIn(client, schema, files, log)
      } finally {
        await client.end()
      }
    },
    {
      // More than fit before the deadline, which is what ends it.
      retries: 10_000,
      minTimeout: 50,
      maxTimeout: 2_000,
      randomize: true,
      shouldRetry: (error) => isTransient(error) && performance.now() - started < deadlineMs,
      onFailedAttempt: (error) => {
        if (isTransient(error)) log(`the migration has to wait: ${error.message}`)
      },
    },
  )
}

/**
 * Version of the schema in the database; 0 when it has not been set up.
 * @throws SchemaNameError
 */
export async function schemaVersion(db: Querying, schema: string): Promise<number> {
  const table = `${quoteSchemaName(schema)}.migration`
  if (!(await exists(db, table))) return 0
  const { rows } = await run<{ version: number }>(db, `select coalesce(max(version), 0) as version from ${table}`)
  return rows[0]!.version
}

/** Newest version that this program knows. */
export async function latestVersion(directory?: string): Promise<number> {
  return (await readMigrations(directory)).length
}

/**
 * For programs that use the schema but do not migrate it.
 * @throws SchemaTooOldError, SchemaTooNewError, ServerTooOldError, SchemaNameError
 */
export async function assertSchemaFits(db: Querying, schema: string, directory?: string): Promise<void> {
  await assertServerFits(db)
  const found = await schemaVersion(db, schema)
  const known = await latestVersion(directory)
  if (found > known) throw new SchemaTooNewError(schema, found, known)
  if (found < known) throw new SchemaTooOldError(schema, found, known)
}

/** One attempt, in one transaction. */
async function migrateIn(
  client: pg.Client,
  schema: string,
  files: readonly MigrationFile[],
  log: (line: string) => void,
): Promise<MigrationResult> {
  const quoted = quoteSchemaName(schema)
  await run(client, 'begin isolation level read committed')
  try {
    await run(client, `set local lock_timeout = '5s'`)
    await run(client, 'set local statement_timeout = 0')
    // Lock order: this lock before any table. Readers of the schema never take it.
    await run(client, 'select pg_advisory_xact_lock($1, $2)', [MIGRATION_LOCK, keyOf(schema)])
    // "if not exists" alone would ask for the right to create schemas even where the schema is there.
    if (!(await schemaExists(client, schema))) await run(client, `create schema ${quoted}`)
    await run(client, `set local search_path to ${quoted}`)
    if (!(await exists(client, `${quoted}.migration`))) await run(client, CREATE_TABLE)

    const from = await checkApplied(client, schema, files)
    const missing = files.slice(from)
    for (const file of missing) {
      await apply(client, file)
      log(`schema "${schema}": applied ${file.name}`)
    }
    await run(client, 'commit')
    return { from, to: files.length, applied: missing.map((file) => file.name) }
  } catch (error) {
    // The error that led here says more than one about a broken connection.
    await run(client, 'rollback').catch(() => {})
    throw error
  }
}

const CREATE_TABLE = `
create table migration (
  version    int primary key,
  name       text not null,
  checksum   text not null,
  applied_at timestamptz not null default now()
)`

/** The version reached so far, once it is certain that it was reached by the same files. */
async function checkApplied(client: pg.Client, schema: string, files: readonly MigrationFile[]): Promise<number> {
  const { rows } = await run<{ version: number; name: string; checksum: string }>(
    client,
    'select version, name, checksum from migration order by version',
  )
  const found = rows.at(-1)?.version ?? 0
  if (found > files.length) throw new SchemaTooNewError(schema, found, files.length)
  const changed = rows.filter((row) => files[row.version - 1]?.checksum !== row.checksum).map((row) => row.name)
  if (changed.length > 0) throw new MigrationChangedError(schema, changed)
  return found
}

async function apply(client: pg.Client, file: MigrationFile): Promise<void> {
  try {
    await run(client, file.sql)
    const record = 'insert into migration (version, name, checksum) values ($1, $2, $3)'
    await run(client, record, [file.version, file.name, file.checksum])
  } catch (error) {
    if (isTransient(error)) throw error
    throw new MigrationFailedError(file.name, error as Error)
  }
}

async function assertServerFits(db: Querying): Promise<void> {
  const { rows } = await run<{ number: number; version: string }>(
    db,
    `select current_setting('server_version_num')::int as number, current_setting('server_version') as version`,
  )
  const { number, version } = rows[0]!
  if (number < OLDEST_SERVER * 10_000) throw new ServerTooOldError(version, OLDEST_SERVER)
}

async function exists(db: Querying, table: string): Promise<boolean> {
  const { rows } = await run<{ found: boolean }>(db, 'select to_regclass($1) is not null as found', [table])
  return rows[0]!.found
}

async function schemaExists(db: Querying, schema: string): Promise<boolean> {
  const { rows } = await run(db, 'select from pg_namespace where nspname = $1', [schema])
  return rows.length > 0
}

function isTransient(error: unknown): boolean {
  return isRetryableConflict(error) || NOT_NOW.has(errorCodeOf(error) ?? '')
}

function keyOf(schema: string): number {
  return createHash('sha256').update(schema).digest().readInt32BE(0)
}

/** The overloads of a client and of a pool are the same, but not to the compiler. */
function run<Row extends pg.QueryResultRow>(
  db: Querying,
  sql: string,
  values?: readonly unknown[],
): Promise<pg.QueryResult<Row>> {
  return (db as pg.Pool).query<Row>(sql, values as unknown[] | undefined)
}
