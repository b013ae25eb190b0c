import { randomUUID } from 'node:crypto'
import { open, stat } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import getPort from 'get-port'
import type pg from 'pg'
import { EmbeddedStartError } from './errors.ts'
import type { Home } from './home.ts'
import { defusePidFile, isServerOn, readPidFile } from './pid-file.ts'
import { probe } from './probe.ts'
import { serverArguments } from './settings.ts'
import { type Supervised, supervise } from './supervisor.ts'

/** Our tie to a running server: one that we started, or one that another process started on the same home. */
export interface Attachment {
  readonly joined: boolean
  readonly port: number
  /** The main process of PostgreSQL. */
  readonly pid: number
  /** Resolved when the server is gone, or for a joined one when the connection to it is lost. */
  readonly gone: Promise<void>
  /** Ends a server of our own by a fast shutdown and waits for it; leaves a joined one alone. */
  release(): Promise<void>
  /** Ends a server of our own by an immediate shutdown, which is a crash to its data; leaves a joined one alone. */
  crash(): Promise<void>
}

export interface ObtainOptions {
  readonly durable: boolean
  readonly overrides: Readonly<Record<string, string>>
  /** The only port that will do; absent, a free one is chosen. */
  readonly port?: number
  readonly log: (line: string) => void
  readonly signal: AbortSignal
}

/** After a crash the server replays its log before it answers, which takes as long as it takes; this is beyond that. */
const START_DEADLINE_MS = 5 * 60_000
const SHUTDOWN_DEADLINE_MS = 60_000
const POLL_MS = 25

/**
 * Starts a server on the home, or joins the one that already runs there. Any number of processes may do this at once:
 * PostgreSQL's own lock file lets one of them through, and the others find its server. A server on its way down, because
 * its process is gone, is waited for and then replaced.
 * @throws EmbeddedStartError when no server comes up
 */
export async function obtainServer(home: Home, options: ObtainOptions): Promise<Attachment> {
  const deadline = Date.now() + START_DEADLINE_MS
  while (Date.now() < deadline) {
    options.signal.throwIfAborted()
    const found = await findServer(home)
    if (typeof found === 'object') return found
    if (found === 'none') {
      const launched = await launch(home, options, deadline)
      if (launched !== undefined) return launched
    }
    await delay(POLL_MS)
  }
  throw new EmbeddedStartError(
    `Another PostgreSQL holds ${home.data}, but does not answer as one of ours; stop it or choose another data folder.`,
  )
}

/** Joins a server that is there to stay; `wait` means that one is coming up or going down. */
async function findServer(home: Home): Promise<Attachment | 'wait' | 'none'> {
  const file = await readPidFile(home.data)
  if (file === undefined) return 'none'
  if (file.port !== undefined && file.ready) {
    const answer = await probe(home, file.port)
    if (answer.kind === 'ours' && isAlive(answer.starter)) {
      const { client } = answer
      const gone = new Promise<void>((resolve) => client.once('end', () => resolve()))
      letGo(client)
      const release = async () => {
        holdOn(client)
        await client.end().catch(() => {})
      }
      return { joined: true, port: file.port, pid: file.pid, gone, release, crash: release }
    }
    // Its process is gone and the supervisor is about to end it.
    if (answer.kind === 'ours') await answer.client.end().catch(() => {})
    if (answer.kind !== 'none') return 'wait'
  }
  if (await isServerOn(home.data, file.pid)) return 'wait'
  // The file may just have been started on, or removed: neither is a leftover.
  const again = await readPidFile(home.data)
  if (again === undefined) return 'none'
  if (again.pid !== file.pid || Number.isNaN(file.pid)) return 'wait'
  if (isAlive(file.pid)) await defusePidFile(home.data)
  return 'none'
}

/** Undefined when it has to be tried again: another process was faster, or somebody took the port. */
async function launch(home: Home, options: ObtainOptions, deadline: number): Promise<Attachment | undefined> {
  const port = options.port ?? (await choosePort())
  const launchId = randomUUID()
  const { durable, overrides, signal } = options
  options.log(`starting PostgreSQL ${home.binaries.version} on 127.0.0.1:${port}`)
  const logStart = await sizeOf(home.logFile)
  const args = serverArguments({ port, durable, overrides, launch: launchId, starter: process.pid })
  const supervised = await supervise(home, args)
  let ended = false
  supervised.gone.then(() => {
    ended = true
  })
  while (!ended && Date.now() < deadline && !signal.aborted) {
    const file = await readPidFile(home.data)
    if (file?.ready && file.port === port) {
      const answer = await probe(home, port)
      if (answer.kind === 'ours') await answer.client.end().catch(() => {})
      if (answer.kind === 'ours' && answer.launch === launchId) return ownServer(home, supervised, port, file.pid)
    }
    await Promise.race([supervised.gone, delay(POLL_MS)])
  }
  supervised.end()
  await supervised.gone
  signal.throwIfAborted()
  const said = await logSince(home.logFile, logStart)
  // Another server on this folder, or children of a dead one that are about to notice.
  if (/lock file "postmaster.pid" already exists|pre-existing shared memory block/.test(said)) return undefined
  if (/could not create any TCP\/IP sockets/.test(said) && options.port === undefined) return undefined
  throw new EmbeddedStartError(`PostgreSQL did not start in ${home.data}. It wrote:\n${said.trim()}`)
}

function ownServer(home: Home, supervised: Supervised, port: number, pid: number): Attachment {
  supervised.holdProcess(false)
  let over = false
  // Should only the supervising shell be gone, the server is not: its watcher still ends it with us.
  const gone = supervised.gone.then(async () => {
    while (await isServerOn(home.data, pid)) await delay(POLL_MS)
    over = true
  })
  const quit = () => {
    if (!over) signalServer(pid, 'SIGQUIT')
  }
  const crash = async () => {
    supervised.holdProcess(true)
    quit()
    supervised.end()
    await gone
  }
  const release = async () => {
    supervised.holdProcess(true)
    supervised.end()
    const timer = setTimeout(quit, SHUTDOWN_DEADLINE_MS)
    await gone
    clearTimeout(timer)
  }
  return { joined: false, port, pid, gone, release, crash }
}

/**
 * Below the range that systems take client ports from (from 32768 on): there a client that tries again and again to
 * reach a stopped server can be given that very port and connect to itself, and the server never gets it back.
 */
async function choosePort(): Promise<number> {
  const candidates = Array.from({ length: 50 }, () => 15_000 + Math.floor(Math.random() * 17_000))
  return await getPort({ host: '127.0.0.1', port: candidates })
}

function signalServer(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** The connection is there to notice the server's end, not to keep this process running. */
function letGo(client: pg.Client): void {
  // Missing from the types of pg, present since 8.0.
  const { unref } = client as pg.Client & { unref(): void }
  unref.call(client)
}

/** Its end is waited for: Node must not take that for nothing left to do. */
function holdOn(client: pg.Client): void {
  const { ref } = client as pg.Client & { ref(): void }
  ref.call(client)
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

async function sizeOf(file: string): Promise<number> {
  return stat(file).then(
    (found) => found.size,
    () => 0,
  )
}

async function logSince(file: string, start: number): Promise<string> {
  const handle = await open(file, 'r')
  try {
    // The file is begun anew when it has grown long.
    const { size } = await handle.stat()
    const from = size < start ? 0 : start
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(Math.min(size - from, 20_000)), 0, undefined, from)
    return buffer.toString('utf8', 0, bytesRead)
  } finally {
    await handle.close()
  }
}
