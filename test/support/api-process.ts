import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'

/** A process that serves the API and runs no jobs. */
export interface ApiProcess {
  readonly pid: number
  readonly port: number
  /** Whether it runs, as far as is known. */
  readonly running: boolean
  /** With SIGKILL unless told otherwise; done when it is gone. */
  end(signal?: NodeJS.Signals): Promise<void>
}

/** How to start one. */
export interface ApiProcessOptions {
  /** Compiled `cli.js`. */
  cli: string
  connectionString: string
  /** More flags of `coppice serve`. */
  flags?: readonly string[]
}

/** Longest time until one serves. */
const READY_MS = 60_000

/** @throws Error if it ended, or did not say in time where it serves */
export async function startApiProcess({ cli, connectionString, flags = [] }: ApiProcessOptions): Promise<ApiProcess> {
  const { PATH = '', HOME = '/' } = process.env
  const child = spawn(process.execPath, [cli, 'serve', '--no-worker', '--json', '--port', '0', ...flags], {
    env: { PATH, HOME, DATABASE_URL: connectionString, COPPICE_LOG_LEVEL: 'error' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const gone = once(child, 'exit')
  return {
    pid: child.pid!,
    port: await portOf(child),
    get running() {
      return child.exitCode === null && child.signalCode === null
    },
    async end(signal = 'SIGKILL') {
      child.kill(signal)
      await gone
    },
  }
}

function portOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    const fail = (why: string) => {
      clearTimeout(timer)
      child.kill('SIGKILL')
      reject(new Error(`An API process ${why}`))
    }
    const onExit = (code: number | null, signal: string | null) => fail(`ended with ${code ?? signal} before it served`)
    const timer = setTimeout(fail, READY_MS, 'did not start in time')
    child.once('exit', onExit)
    child.stdout!.once('data', (said) => {
      clearTimeout(timer)
      child.off('exit', onExit)
      resolve(Number(new URL((JSON.parse(String(said)) as { url: string }).url).port))
    })
  })
}
