import pg from 'pg'
import { type Home, SUPERUSER } from './home.ts'

/** What a connection to a port tells about who listens there. */
export type Probe =
  /** A server on this home, with the connection it was asked over, which the caller closes. */
  | { readonly kind: 'ours'; readonly launch: string; readonly starter: number; readonly client: pg.Client }
  /** A server that is starting or shutting down. */
  | { readonly kind: 'busy' }
  /** Nobody, or somebody else. */
  | { readonly kind: 'none' }

/** The address of the server of a home. */
export function connectionStringOf(home: Home, port: number): string {
  return `postgresql://${SUPERUSER}:${home.password}@127.0.0.1:${port}/postgres`
}

const NO_CONNECTION_NOW = '57P03'
const TOO_MANY_CONNECTIONS = '53300'

/** Connects to `port` and looks whether the server of this home answers. */
export async function probe(home: Home, port: number): Promise<Probe> {
  const client = new pg.Client({
    connectionString: connectionStringOf(home, port),
    application_name: 'coppice embedded server',
    connectionTimeoutMillis: 5_000,
    query_timeout: 5_000,
  })
  // A connection that breaks later is told by 'end'; without a listener it would end the process.
  client.on('error', () => {})
  try {
    await client.connect()
    const { rows } = await client.query<{ data: string; launch: string | null; starter: string | null }>(
      `select current_setting('data_directory') data,
              current_setting('coppice.launch', true) launch,
              current_setting('coppice.starter', true) starter`,
    )
    const [row] = rows
    if (row?.data === home.data && row.launch !== null && row.starter !== null) {
      return { kind: 'ours', launch: row.launch, starter: Number(row.starter), client }
    }
  } catch (error) {
    const { code } = error as { code?: string }
    if (code === NO_CONNECTION_NOW || code === TOO_MANY_CONNECTIONS) return { kind: 'busy' }
  }
  await client.end().catch(() => {})
  return { kind: 'none' }
}
