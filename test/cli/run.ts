import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { vi } from 'vitest'
import { main } from '../../src/cli/main.ts'
import { settings } from '../../src/config.ts'
import type { TestDatabase } from '../support/database.ts'
import { until } from '../support/until.ts'

const CLI = fileURLToPath(new URL('../../src/cli.ts', import.meta.url))

/** The checkout: where commands run. */
export const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** How a command ended. */
export interface Ended {
  code: number | null
  signal: NodeJS.Signals | null
  stdout: string
  stderr: string
}

/** A command under way. */
export interface Running {
  readonly child: ChildProcess
  readonly stdout: string
  readonly stderr: string
  readonly ended: Promise<Ended>
  /** Waits until standard output (or error) matches. */
  said(pattern: RegExp, stream?: 'stdout' | 'stderr'): Promise<RegExpMatchArray>
}

/** Starts `coppice` with these arguments; `env` adds to a clean environment. */
export function start(args: readonly string[], env: Record<string, string> = {}): Running {
  const { PATH = '', HOME = '/' } = process.env
  const child = spawn(process.execPath, ['--import', import.meta.resolve('tsx'), CLI, ...args], {
    cwd: ROOT,
    env: { PATH, HOME, ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  const text = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name]!.setEncoding('utf8').on('data', (chunk: string) => {
      text[name] += chunk
    })
  }
  const ended = once(child, 'close').then(([code, signal]): Ended => ({ code, signal, ...text }))
  return {
    child,
    ended,
    get stdout() {
      return text.stdout
    },
    get stderr() {
      return text.stderr
    },
    said: (pattern, stream = 'stdout') =>
      until(
        () => {
          const match = pattern.exec(text[stream])
          if (!match && (child.exitCode !== null || child.signalCode !== null)) {
            throw new Error(`it ended with ${child.exitCode ?? child.signalCode}: ${text.stderr}`)
          }
          return match
        },
        { timeout: 45_000, what: `${args.join(' ')} to say ${pattern}` },
      ) as Promise<RegExpMatchArray>,
  }
}

/** Runs `coppice` to its end, in a process of its own. */
export async function coppice(
  args: readonly string[],
  env: Record<string, string> = {},
  stdin?: string,
): Promise<Ended> {
  const { child, ended } = start(args, env)
  child.stdin!.on('error', () => {}).end(stdin)
  return ended
}

/** Runs `coppice` to its end in this process, which saves starting one. One at a time. */
export async function coppiceHere(args: readonly string[], env: Record<string, string> = {}): Promise<Ended> {
  const text = { stdout: '', stderr: '' }
  for (const { env: name } of settings) vi.stubEnv(name, env[name])
  for (const name of ['stdout', 'stderr'] as const) {
    vi.spyOn(process[name], 'write').mockImplementation((chunk) => {
      text[name] += chunk
      return true
    })
  }
  process.exitCode = undefined
  try {
    await main(args)
    return { code: Number(process.exitCode ?? 0), signal: null, ...text }
  } finally {
    process.exitCode = undefined
    vi.restoreAllMocks()
    vi.unstubAllEnvs()
  }
}

/** The variables that name a test's database. */
export function envOf(database: TestDatabase): Record<string, string> {
  return { DATABASE_URL: database.connectionString, COPPICE_SCHEMA: database.schema }
}

/** Ends whatever a test has left running. */
export async function killAll(running: readonly Running[]): Promise<void> {
  for (const { child } of running) child.kill('SIGKILL')
  await Promise.all(running.map(({ ended }) => ended))
}
