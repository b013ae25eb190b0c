import type pg from 'pg'
import type { Statement } from './statement.ts'

/*
 * Whether a connection leads to one backend for as long as it lives. Through a pooler in transaction mode each transaction
 * may meet another backend, where a statement prepared earlier is unknown, or means something else. A pooler makes up the
 * process id that it greets its clients with: the backend's own is asked for, and compared.
 */

const direct = new WeakSet<pg.ClientBase>()

/** Finds out about a connection of a pool, once, before its first use. */
export async function lookWhetherDirect(client: pg.ClientBase): Promise<void> {
  const { processID } = client as pg.ClientBase & { processID: number | null }
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid')
  if (rows[0]?.pid === processID) direct.add(client)
}

/** Runs a statement on a connection, kept prepared if it is one of those and may be. */
export async function runStatement<Row>(
  client: pg.ClientBase,
  { name, prepared }: Statement<Row>,
  text: string,
  parameters: readonly unknown[],
): Promise<Row[]> {
  const values = parameters as unknown[]
  const run = prepared && direct.has(client) ? client.query({ name, text, values }) : client.query(text, values)
  return (await run).rows as Row[]
}
