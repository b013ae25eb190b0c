import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { until } from './until.ts'

/** A worker in a process of its own, to be killed and frozen. */
export interface LeaseWorker {
  readonly name: string
  readonly process: ChildProcess
  /** Global ids of jobs whose handlers it has started, once for each attempt. */
  readonly started: readonly string[]
  /** Texts of what it logged. */
  readonly log: readonly string[]
  signal(signal: NodeJS.Signals): void
  /** Kills it in an instant and waits until it is gone. */
  killHard(): Promise<void>
  /** Lets it stop by itself, as well as it can. */
  finish(): Promise<void>
}

const PROGRAM = fileURLToPath(new URL('./programs/lease-worker.ts', import.meta.url))

/** Starts `programs/lease-worker.ts` and waits until it claims. */
export async function startLeaseWorker(connectionString: string, name: string): Promise<LeaseWorker> {
  const child = spawn(process.execPath, ['--import', import.meta.resolve('tsx'), PROGRAM, connectionString, name], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const exited = once(child, 'exit')
  const started: string[] = []
  const log: string[] = []
  let ready = false
  createInterface({ input: child.stdout }).on('line', (line) => {
    const message = JSON.parse(line) as { log?: { msg: string }; started?: string; ready?: true }
    if (message.log) log.push(message.log.msg)
    if (message.started !== undefined) started.push(message.started)
    if (message.ready) ready = true
  })
  await until(
    () => {
      if (child.exitCode !== null) throw new Error(`it ended with ${child.exitCode}`)
      return ready
    },
    { timeout: 30_000, what: `worker ${name} to be ready` },
  )
  return {
    name,
    process: child,
    started,
    log,
    signal: (signal) => void child.kill(signal),
    async killHard() {
      child.kill('SIGKILL')
      await exited
    },
    async finish() {
      child.kill('SIGCONT')
      child.stdin.end()
      await exited
    },
  }
}
