import pg from 'pg'
import { errorCodeOf, isRetryableConflict } from '../../src/db/connection-errors.ts'
import { type Database, databaseOf } from '../../src/db/database.ts'

/** Where a session is: running code of its own, at the gate with a statement, in the server with one, or through. */
export type SessionPlace = 'thinking' | 'at the gate' | 'in the server' | 'through'

/** A connection whose every statement waits at a gate until it is let through; begin alone passes, as it sees nothing. */
export interface SteppedSession {
  readonly name: string
  /** Of the session in the server. */
  readonly pid: number
  /** For the engine's verbs: its pool has this one connection. */
  readonly db: Database
  place: SessionPlace
  /** The statement at the gate or in the server, by name. */
  step: string
  /** Tells the statement at the gate from others: two that are alike ask the same again. */
  likeness: string
  /** SQLSTATE of deadlocks, serialization failures and lock timeouts that it met since the last call. */
  takeConflicts(): string[]
  letThrough(): void
  close(): Promise<void>
}

/** Opens one. `moved` is called whenever its place changes. */
export async function openSteppedSession(
  name: string,
  server: { connectionString: string; schema: string },
  moved: () => void,
): Promise<SteppedSession> {
  const client = new pg.Client({ connectionString: server.connectionString, application_name: `session ${name}` })
  client.on('error', () => {})
  await client.connect()
  // A deadlock is part of what is looked for: no need to wait a second for its victim.
  const { rows } = await client.query(`set deadlock_timeout = '20ms'; select pg_backend_pid() as pid`).then(last)
  let open: () => void = () => {}
  let conflicts: string[] = []

  const query = async (asked: string | { text: string; values?: unknown[] }, values?: unknown[]) => {
    const { text, values: parameters } = typeof asked === 'string' ? { text: asked, values } : asked
    if (/^begin\b/.test(text)) return client.query(text)
    session.step = /^\/\* coppice:(\S+) \*\//.exec(text)?.[1] ?? text.trim().split('\n')[0]!.slice(0, 60)
    session.likeness = `${text}${JSON.stringify(parameters ?? null)}`
    await new Promise<void>((resolve) => {
      open = resolve
      goTo('at the gate')
    })
    try {
      return await client.query(text, parameters)
    } catch (error) {
      if (isRetryableConflict(error)) conflicts.push(errorCodeOf(error)!)
      throw error
    } finally {
      goTo('thinking')
    }
  }
  const pool = { query, connect: async () => ({ query, release() {} }) } as unknown as pg.Pool
  const session: SteppedSession = {
    name,
    pid: rows[0].pid,
    db: databaseOf(pool, server.schema),
    place: 'thinking',
    step: '',
    likeness: '',
    takeConflicts() {
      const taken = conflicts
      conflicts = []
      return taken
    },
    letThrough() {
      goTo('in the server')
      open()
    },
    close: () => client.end(),
  }
  function goTo(place: SessionPlace): void {
    session.place = place
    moved()
  }
  return session
}

function last(results: unknown): pg.QueryResult {
  return (results as pg.QueryResult[]).at(-1)!
}
