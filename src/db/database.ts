import { createHash } from 'node:crypto'
import { Kysely, PostgresDialect } from 'kysely'
import pg from 'pg'
import { lookWhetherDirect, runStatement } from './direct.ts'
import { typeParsers } from './instants.ts'
import { type Statement, type TableNames, tableNames } from './statement.ts'
import type { Tables } from './tables.ts'

/** Something that runs named statements: a {@link Database} (each on its own) or a transaction. */
export interface Queryable {
  query<Row>(statement: Statement<Row>, parameters?: readonly unknown[]): Promise<Row[]>
}

/** One installation of Coppice: a pool and a schema. */
export interface Database extends Queryable {
  readonly pool: pg.Pool
  readonly schema: string
  readonly tables: TableNames
  /** First key of this installation's advisory locks, from the schema's name. */
  readonly lockSpace: number
  /** For reads whose shape depends on input (filters, pages). */
  readonly kysely: Kysely<Tables>
  /** The text of a statement for this schema. */
  text(statement: Statement<unknown>): string
  close(): Promise<void>
}

/** How to reach the database. */
export interface DatabaseOptions {
  connectionString: string
  /** Default `coppice`. */
  schema?: string
  /** Most connections in the pool; default 10. */
  poolSize?: number
  /** Told of connections that broke while idle; the pool replaces them. */
  onError?: (error: Error) => void
}

// int8 and xid8 stay strings, as node-postgres has them; timestamps become Dates with milliseconds, whatever they are.

/** Opens the pool; connects on first use. */
export function openDatabase(options: DatabaseOptions): Database {
  const pool = new pg.Pool({
    connectionString: options.connectionString,
    max: options.poolSize ?? 10,
    application_name: 'coppice',
    connectionTimeoutMillis: 10_000,
    keepAlive: true,
    types: typeParsers,
    verify: (client, done) => {
      lookWhetherDirect(client).then(() => done(), done)
    },
  })
  pool.on('error', (error) => options.onError?.(error))
  // A client that is checked out reports its broken socket here; its query is rejected as well.
  pool.on('connect', (client) => client.on('error', () => {}))
  return databaseOf(pool, options.schema ?? 'coppice', () => pool.end())
}

/** A database over a pool that somebody else owns. */
export function databaseOf(pool: pg.Pool, schema: string, close: () => Promise<void> = async () => {}): Database {
  const tables = tableNames(schema)
  const texts = new Map<Statement<unknown>, string>()
  const text = (statement: Statement<unknown>) => {
    let sql = texts.get(statement)
    if (sql === undefined) {
      sql = `/* coppice:${statement.name} */ ${statement.text(tables)}`
      texts.set(statement, sql)
    }
    return sql
  }
  const kysely = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) }).withSchema(schema)
  return {
    pool,
    schema,
    tables,
    lockSpace: createHash('sha256').update(`coppice:${schema}`).digest().readInt32BE(0),
    kysely,
    text,
    close,
    async query<Row>(statement: Statement<Row>, parameters: readonly unknown[] = []) {
      if (!statement.prepared) return (await pool.query(text(statement), parameters as unknown[])).rows as Row[]
      const client = await pool.connect()
      let failure: unknown
      try {
        return await runStatement<Row>(client, statement, text(statement), parameters)
      } catch (error) {
        failure = error
        throw error
      } finally {
        // As the pool's own `query`: a connection on which something failed is not used again.
        client.release(failure as Error | undefined)
      }
    },
  }
}
