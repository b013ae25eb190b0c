import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { until } from './until.ts'

/** What a host says of its server. */
export interface HostedServer {
  readonly connectionString: string
  readonly pid: number
  readonly port: number
  readonly joined: boolean
}

/** A process of its own with an embedded server in it. */
export interface Host {
  readonly process: ChildProcess
  readonly log: readonly string[]
  /** The server, once it is ready. */
  ready(): Promise<HostedServer>
  /** Kills the process in an instant and waits until it is gone. */
  killHard(): Promise<void>
  /** Lets it stop its server and end. */
  finish(): Promise<void>
}

const PROGRAM = fileURLToPath(new URL('./embedded-host.ts', import.meta.url))

/** Starts a program with an embedded server on a data folder; in a process group of its own, as a terminal would. */
export function spawnHost(dataDir: string): Host {
  const child = spawn(process.execPath, ['--import', import.meta.resolve('tsx'), PROGRAM, dataDir], {
    detached: true,
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const exited = once(child, 'exit')
  const log: string[] = []
  let server: HostedServer | undefined
  createInterface({ input: child.stdout! }).on('line', (line) => {
    const message = JSON.parse(line) as { log?: string; ready?: HostedServer }
    if (message.log !== undefined) log.push(message.log)
    server = message.ready ?? server
  })
  return {
    process: child,
    log,
    ready: () =>
      until(
        () => {
          if (child.exitCode !== null) throw new Error(`it ended with ${child.exitCode}`)
          return server
        },
        { timeout: 30_000, what: 'the server of another process to be ready' },
      ),
    async killHard() {
      child.kill('SIGKILL')
      await exited
    },
    async finish() {
      child.stdin!.end()
      await exited
    },
  }
}
