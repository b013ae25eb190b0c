import { randomBytes } from 'node:crypto'
import pRetry from 'p-retry'
import pg from 'pg'
import { inject } from 'vitest'
import { withDatabase } from './with-database.ts'

/** A database of a test's own: a clone of the migrated template. */
export interface TestDatabase {
  readonly connectionString: string
  /** The schema that holds Coppice's tables. */
  readonly schema: string
  /** For the test's own statements; the code under test gets `connectionString` and opens its own. */
  readonly pool: pg.Pool
  /** Ends the pool and removes the database, with whatever is still connected to it. */
  drop(): Promise<void>
}

const OBJECT_IN_USE = '55006'

/** Makes a database by cloning the template of the run, in some tens of milliseconds. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const { connectionString: server, template, schema } = inject('testServer')
  const name = `test_${randomBytes(8).toString('hex')}`
  // A template cannot be cloned while anything is connected to it, such as a clone under way elsewhere.
  await pRetry(() => administer(server, `create database ${name} template ${template}`), {
    minTimeout: 50,
    maxTimeout: 500,
    retries: 100,
    maxRetryTime: 30_000,
    shouldRetry: (error) => (error as { code?: string }).code === OBJECT_IN_USE,
  })
  const connectionString = withDatabase(server, name)
  const pool = new pg.Pool({ connectionString, max: 5 })
  // Tests that restart the server break idle connections; the next statement opens a new one.
  pool.on('error', () => {})
  const drop = async () => {
    await pool.end()
    await administer(server, `drop database if exists ${name} with (force)`)
  }
  return { connectionString, schema, pool, drop }
}

async function administer(connectionString: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString })
  await client.connect()
  try {
    await client.query(sql)
  } finally {
    await client.end()
  }
}
