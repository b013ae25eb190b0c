import { randomUUID } from 'node:crypto'
import net from 'node:net'
import pg from 'pg'

/** What a bell connection needs. */
export interface BellConnectionOptions {
  connectionString: string
  channel: string
  /** False: it only rings. */
  listen: boolean
  /** Pause between two heartbeats, in milliseconds. */
  heartbeatMs: number
  /** A query that has no answer by then shows that the connection is gone, in milliseconds. */
  deadlineMs: number
  /** Another process has rung. */
  onRing: () => void
}

/** One connection that hears and rings; never from a pool. */
export interface BellConnection {
  /** Tells all who listen. A failure ends the connection. */
  ring(): Promise<void>
  /**
   * Whether a ring of another session arrives here: one of its own would, even through a pooler that swallows others'.
   * Throws when that other session does not come about, or this one is lost.
   */
  hears(withinMs: number): Promise<boolean>
  /** Settles when the connection is gone, with the reason. */
  readonly lost: Promise<Error>
  close(): void
}

const APPLICATION = 'coppice doorbell'
const TEST_APPLICATION = 'coppice doorbell test'
/** Payload of a test; a ring has none. */
const TEST_PREFIX = 'test:'
const KEEPALIVE_MS = 5_000
/** A connection that takes leave of a server that is gone would keep its socket, and the process, for minutes. */
const FAREWELL_MS = 500

/** Connects, and listens if it is to: when it returns, LISTEN is in force. */
export async function openBellConnection(options: BellConnectionOptions): Promise<BellConnection> {
  const { channel, listen, heartbeatMs, onRing } = options
  const { client, socket } = clientOf(options, APPLICATION)
  const notify = `notify ${pg.escapeIdentifier(channel)}`
  const tests = new Map<string, () => void>()
  let pid = 0
  let timer: NodeJS.Timeout | undefined
  let lose: (reason: Error) => void = () => {}
  let over = false
  const lost = new Promise<Error>((resolve) => {
    lose = (reason) => {
      if (over) return
      over = true
      clearTimeout(timer)
      leave(client, socket)
      resolve(reason)
    }
  })
  client.on('error', (error) => lose(error))
  client.on('end', () => lose(new Error('The connection has ended.')))
  client.on('notification', ({ processId, payload = '' }) => {
    if (payload.startsWith(TEST_PREFIX)) tests.get(payload)?.()
    else if (processId !== pid) onRing()
  })

  /** A query in the same session: finds sockets that are half open, and sessions that a pooler has exchanged. */
  async function heartbeat() {
    try {
      const { rows } = await client.query<{ same: boolean }>(
        `select pg_backend_pid() = $1::int and (not $2::boolean or $3 in (select pg_listening_channels())) as same`,
        [pid, listen, channel],
      )
      if (over) return
      if (rows[0]?.same === true) timer = setTimeout(heartbeat, heartbeatMs)
      else lose(new Error('This session is not the one that listens: there is a pooler in between.'))
    } catch (error) {
      lose(error as Error)
    }
  }

  try {
    await client.connect()
    // Not from the handshake: a pooler answers that with a number of its own.
    pid = (await client.query<{ pid: number }>('select pg_backend_pid() as pid')).rows[0]!.pid
    if (listen) await client.query(`listen ${pg.escapeIdentifier(channel)}`)
  } catch (error) {
    lose(error as Error)
    throw error
  }
  timer = setTimeout(heartbeat, heartbeatMs)

  return {
    lost,
    close: () => lose(new Error('Closed.')),
    async ring() {
      try {
        await client.query(notify)
      } catch (error) {
        lose(error as Error)
        throw error
      }
    },
    async hears(withinMs) {
      const payload = TEST_PREFIX + randomUUID()
      const arrival = new Promise<boolean>((resolve) => tests.set(payload, () => resolve(true)))
      let giveUp: NodeJS.Timeout | undefined
      try {
        await notifyFromElsewhere(options, payload)
        const silence = new Promise<boolean>((resolve) => {
          giveUp = setTimeout(resolve, withinMs, false)
        })
        return await Promise.race([arrival, silence, lost.then((reason) => Promise.reject(reason))])
      } finally {
        clearTimeout(giveUp)
        tests.delete(payload)
      }
    },
  }
}

async function notifyFromElsewhere(options: BellConnectionOptions, payload: string): Promise<void> {
  const { client, socket } = clientOf(options, TEST_APPLICATION)
  client.on('error', () => {})
  try {
    await client.connect()
    await client.query('select pg_notify($1, $2)', [options.channel, payload])
  } finally {
    leave(client, socket)
  }
}

function clientOf({ connectionString, deadlineMs }: BellConnectionOptions, application: string) {
  const socket = new net.Socket()
  const client = new pg.Client({
    connectionString,
    stream: () => socket,
    application_name: application,
    connectionTimeoutMillis: deadlineMs,
    query_timeout: deadlineMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEPALIVE_MS,
  })
  return { client, socket }
}

function leave(client: pg.Client, socket: net.Socket): void {
  const farewell = setTimeout(() => socket.destroy(), FAREWELL_MS)
  client
    .end()
    .catch(() => {})
    .finally(() => clearTimeout(farewell))
}
