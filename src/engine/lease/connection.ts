import pg from 'pg'
import { type Statement, tableNames } from '../../db/statement.ts'

/** A connection of the heartbeat's own: opened when it is needed, thrown away at the first failure. */
export interface LeaseConnection {
  /** Runs one statement by itself. Any error has closed the connection; the next call opens another. */
  query<Row>(statement: Statement<Row>, parameters: readonly unknown[]): Promise<Row[]>
  close(): Promise<void>
}

/**
 * A {@link LeaseConnection}. Connecting and each statement have `deadlineMs`, kept by timers on this side: what the
 * server or a half-open socket does with them, the beat goes on. (A timeout set in the session would not hold through a
 * transaction-mode pooler.)
 */
export function leaseConnection(options: {
  connectionString: string
  schema: string
  deadlineMs: number
}): LeaseConnection {
  const tables = tableNames(options.schema)
  let current: pg.Client | undefined

  async function connected(): Promise<pg.Client> {
    if (current) return current
    const client = new pg.Client({
      connectionString: options.connectionString,
      application_name: 'coppice heartbeat',
      keepAlive: true,
      connectionTimeoutMillis: options.deadlineMs,
      query_timeout: options.deadlineMs,
    })
    // A connection that breaks while idle is noticed by the next statement; that it broke must not end the thread.
    client.on('error', () => {})
    client.on('end', () => {
      if (current === client) current = undefined
    })
    try {
      await client.connect()
    } catch (error) {
      discard(client)
      throw error
    }
    current = client
    return client
  }

  // Closes the socket at once if a statement is under way; nobody waits for it.
  function discard(client: pg.Client): void {
    if (current === client) current = undefined
    client.end().catch(() => {})
  }

  return {
    async query<Row>(statement: Statement<Row>, parameters: readonly unknown[]) {
      const client = await connected()
      try {
        const text = `/* coppice:${statement.name} */ ${statement.text(tables)}`
        return (await client.query(text, parameters as unknown[])).rows as Row[]
      } catch (error) {
        discard(client)
        throw error
      }
    },
    async close() {
      if (current) discard(current)
    },
  }
}
