import { Worker } from 'node:worker_threads'
import { EngineError } from '../errors.ts'
import type { WorkerIdentity } from './identity.ts'
import type { BeatReport, FromThread, ThreadError, ThreadInput, ToThread } from './messages.ts'

/** The worker could not be registered, and trying again would not help. */
export class HeartbeatRefusedError extends EngineError {
  readonly code = 'HEARTBEAT_REFUSED'
}

/** How to start a heartbeat. */
export interface HeartbeatOptions {
  connectionString: string
  schema: string
  worker: WorkerIdentity
  /** Gives up starting: while the database cannot be reached, starting waits for it. */
  signal?: AbortSignal
}

/** Who is told what. Nothing is called before `startHeartbeat` has resolved but `failing`, nor after `stop` was called. */
export interface HeartbeatListener {
  /** After each beat that succeeded. Reports queue up while the main thread is blocked and then come in order. */
  beat(report: BeatReport): void
  /**
   * The row is dead or gone, or the thread died: this incarnation is over. Abort all its attempts with LEASE_LOST, and
   * start another heartbeat under a new id. Called once; nothing is called afterwards.
   */
  lost(): void
  /** A beat, or registering, failed and is tried again at once, for ever: called for each try. */
  failing(error: Error): void
}

/** A running heartbeat. */
export interface Heartbeat {
  /**
   * Says in the row that this worker claims no more. Resolves after the first try to write it; if that fails, the next
   * beat that succeeds carries it.
   */
  setStopping(): Promise<void>
  /**
   * Ends the beat. `removeRow`: the row is deleted, if no RUNNING job names it; it is marked dead otherwise, so that what
   * the worker still holds goes back without delay. Resolves within a few seconds even when the database is away: then
   * the row stays, and others declare it dead. Again, or after `lost`: does nothing.
   */
  stop(options: { removeRow: boolean }): Promise<void>
}

/** Longest time that a clean stop may take, in ms. */
const STOP_DEADLINE_MS = 5000

/**
 * Registers a worker and keeps it alive from a thread of its own, with its own connection: a handler that blocks the
 * event loop stops no beat. Resolves once the row is there.
 *
 * @throws {HeartbeatRefusedError} when the row cannot be written, say for want of the table.
 */
export async function startHeartbeat(options: HeartbeatOptions, on: HeartbeatListener): Promise<Heartbeat> {
  const { connectionString, schema, worker, signal } = options
  signal?.throwIfAborted()
  const thread = startThread({ connectionString, schema, worker })
  let up = false
  let over = false
  let exited = false
  const whenStoppingSet: (() => void)[] = []

  const end = (): void => {
    over = true
    for (const resolve of whenStoppingSet.splice(0)) resolve()
  }
  const lost = (): void => {
    if (over) return
    end()
    on.lost()
  }

  await new Promise<void>((resolve, reject) => {
    const giveUp = (): void => {
      over = true
      void thread.terminate()
      reject(signal?.reason)
    }
    signal?.addEventListener('abort', giveUp, { once: true })
    const fail = (why: string, cause: Error | undefined): void => {
      over = true
      signal?.removeEventListener('abort', giveUp)
      reject(new HeartbeatRefusedError(why, { cause }))
    }
    let threadError: Error | undefined
    thread.on('message', (message: FromThread) => {
      if (over) return
      if (message.kind === 'registered') {
        up = true
        signal?.removeEventListener('abort', giveUp)
        resolve()
      } else if (message.kind === 'beat') on.beat(message.report)
      else if (message.kind === 'failing') on.failing(errorOf(message.error))
      else if (message.kind === 'lost') lost()
      else if (message.kind === 'stopping-set') for (const done of whenStoppingSet.splice(0)) done()
      else if (message.kind === 'refused') {
        const cause = errorOf(message.error)
        fail(`The worker cannot be registered: ${cause.message}`, cause)
      }
    })
    thread.on('error', (error) => {
      threadError = error
      if (up && !over) on.failing(error)
    })
    thread.on('exit', () => {
      exited = true
      if (up) lost()
      else if (!over) fail('The heartbeat thread ended before it began.', threadError)
    })
  })

  const send = (message: ToThread): void => thread.postMessage(message)
  let stopped: Promise<void> | undefined
  return {
    async setStopping() {
      if (over) return
      await new Promise<void>((resolve) => {
        whenStoppingSet.push(resolve)
        send({ kind: 'set-stopping' })
      })
    },
    stop({ removeRow }) {
      stopped ??= (async () => {
        end()
        if (exited) return
        const gone = new Promise<void>((resolve) => thread.once('exit', () => resolve()))
        send({ kind: 'stop', removeRow })
        const timer = setTimeout(() => void thread.terminate(), STOP_DEADLINE_MS)
        await gone
        clearTimeout(timer)
      })()
      return stopped
    },
  }
}

/** Starts the thread from the module beside this one. */
function startThread(workerData: ThreadInput): Worker {
  const options = { workerData, name: 'coppice heartbeat', execArgv: [] }
  if (!import.meta.url.endsWith('.ts')) {
    return new Worker(new URL('./heartbeat-thread.js', import.meta.url), options)
  }
  // This runs as TypeScript. A thread does not inherit tsx's hooks, and `--import tsx` has no effect in one (tried with
  // Node 20.20 and tsx 4.23), so the thread takes them up itself.
  const tsx = JSON.stringify(import.meta.resolve('tsx/esm/api'))
  const entry = JSON.stringify(new URL('./heartbeat-thread.ts', import.meta.url).href)
  const bootstrap = `import(${tsx}).then(({ register }) => { register(); return import(${entry}) })`
  return new Worker(bootstrap, { ...options, eval: true })
}

function errorOf({ message, code }: ThreadError): Error {
  return code === undefined ? new Error(message) : Object.assign(new Error(message), { code })
}
