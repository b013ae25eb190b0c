import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { EmbeddedStartError } from './errors.ts'
import { openHome } from './home.ts'
import { type Attachment, obtainServer } from './obtain.ts'
import { connectionStringOf } from './probe.ts'

/** How to run an embedded server. */
export interface EmbeddedOptions {
  /** The folder that keeps the data from one run to the next; made if it is not there. */
  readonly dataDir: string
  /** Whether a commit must survive a crash of the machine (default true). False is for data that are thrown away. */
  readonly durable?: boolean
  /** Settings of PostgreSQL that replace the chosen ones, such as `{ work_mem: '64MB' }`. */
  readonly settings?: Readonly<Record<string, string>>
  /** The TCP port on 127.0.0.1 (default: a free one). */
  readonly port?: number
  /** Gets a line for what a user may want to know: a database made, a server started or joined. */
  readonly log?: (line: string) => void
}

/** A PostgreSQL server that belongs to this process, or that it shares with another on the same data folder. */
export interface EmbeddedServer {
  /** With the password of the superuser, which is in the data folder too; stays the same for the life of this object. */
  readonly connectionString: string
  readonly port: number
  readonly dataDir: string
  /** The main process of PostgreSQL, as it is now. */
  readonly pid: number
  /** Whether another process started it, as it is now. When that process ends, this one starts the server again. */
  readonly joined: boolean
  /**
   * Ends the server by a fast shutdown and waits until it is gone. A server that was joined is left alone: the process
   * that started it ends it. Calling it twice does no harm.
   */
  stop(): Promise<void>
  /**
   * Ends the server as a crash would, for tests: an immediate shutdown, after which it stays down until `restart`.
   * @throws EmbeddedStartError when another process started it
   */
  kill(): Promise<void>
  /** Ends the server if it runs (a joined one is left alone) and starts it again on the same port. */
  restart(): Promise<void>
}

/**
 * Starts PostgreSQL on a data folder, or joins the server that another process runs on it. It listens on 127.0.0.1 only
 * and asks for a password. It ends with this process, also when that is killed; it does not keep the process running.
 * Should it end while it is needed (its own failure, or the end of the process it was joined from), it is started again
 * on the same port; connections break as they do when any server restarts.
 * @throws EmbeddedUnavailableError when there is no PostgreSQL for this machine
 * @throws EmbeddedDataVersionError when the data are another major version's
 * @throws EmbeddedDataError when the data folder cannot be used
 * @throws EmbeddedStartError when the server does not come up
 */
export async function startEmbeddedServer(options: EmbeddedOptions): Promise<EmbeddedServer> {
  const { durable = true, settings: overrides = {}, log = () => {} } = options
  const dataDir = path.resolve(options.dataDir)
  const home = await openHome(dataDir, durable, log)
  let stopping = new AbortController()

  const obtain = async (port: number | undefined): Promise<Attachment> => {
    const attachment = await obtainServer(home, {
      durable,
      overrides,
      log,
      signal: stopping.signal,
      ...(port === undefined ? {} : { port }),
    })
    const how = attachment.joined ? 'joined the server of another process' : `ready, data in ${home.folder}`
    log(`PostgreSQL ${home.binaries.version} on 127.0.0.1:${attachment.port}: ${how}`)
    return attachment
  }

  let current = await obtain(options.port)
  const { port } = current
  let keeping = keep()

  /** Sees to it that there is a server until `stopping` says otherwise. */
  async function keep(): Promise<void> {
    const { signal } = stopping
    for (;;) {
      await current.gone
      if (signal.aborted) return
      log('PostgreSQL is gone; bringing it back')
      for (let wait = 100; ; wait = Math.min(wait * 2, 10_000)) {
        try {
          current = await obtain(port)
          break
        } catch (error) {
          if (signal.aborted) return
          log(`PostgreSQL did not come back, trying again: ${(error as Error).message}`)
          await delay(wait, undefined, { ref: false, signal }).catch(() => {})
        }
      }
    }
  }

  async function end(how: (attachment: Attachment) => Promise<void>): Promise<void> {
    stopping.abort()
    const first = current
    await how(first)
    // An attempt to bring the server back may have got through just before the signal.
    await keeping
    if (current !== first) await how(current)
  }

  let last: Promise<void> = Promise.resolve()
  /** One at a time, in the order they were asked for. */
  const inOrder = (action: () => Promise<void>): Promise<void> => {
    const result = last.then(action)
    last = result.catch(() => {})
    return result
  }

  return {
    connectionString: connectionStringOf(home, port),
    port,
    dataDir,
    get pid() {
      return current.pid
    },
    get joined() {
      return current.joined
    },
    stop: () => inOrder(() => end((attachment) => attachment.release())),
    kill: () =>
      inOrder(async () => {
        if (current.joined)
          throw new EmbeddedStartError('This server was started by another process: only that can kill it.')
        await end((attachment) => attachment.crash())
      }),
    restart: () =>
      inOrder(async () => {
        await end((attachment) => attachment.release())
        stopping = new AbortController()
        current = await obtain(port)
        keeping = keep()
      }),
  }
}
