import { type ChildProcess, spawn } from 'node:child_process'
import { chown, open, rename, stat } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { isRoot, serverEnvironment } from './account.ts'
import type { Home } from './home.ts'

/** A server of our own at work: it ends when `end` is called or when this process is gone, however it went. */
export interface Supervised {
  /** Resolved when the server and its supervisor are gone. */
  readonly gone: Promise<void>
  /** Asks for a fast shutdown: transactions are rolled back, everything is written, nothing is lost. */
  end(): void
  /** Keeps this process running until the server is gone (or, with false, no longer). */
  holdProcess(hold: boolean): void
}

/**
 * Fd 3 is a pipe whose other end only the starting process has: end of file means that it is gone. The signal goes to
 * the whole process group, which this shell leads, rather than to a process id, so it can never hit a stranger; it is
 * repeated in case the server was just about to be started. The shell itself ($$) lives until the server is gone and
 * collects it, and then ends the watcher; should the shell be killed, the watcher still ends the server.
 */
const SCRIPT = `
trap : INT
(
  while read -r line; do :; done <&3
  kill -INT 0
  while sleep 1 && kill -0 "$$"; do kill -INT 0; done
) 2>/dev/null &
"$@" 3<&-
status=$?
trap '' TERM
kill -TERM 0
exit $status
`

const LOG_LIMIT_BYTES = 8 * 1024 * 1024

/** Starts `postgres` with these arguments on a home; it may still fail to come up, after which `gone` is resolved. */
export async function supervise(home: Home, args: readonly string[]): Promise<Supervised> {
  await limitLog(home.logFile)
  const logFile = await open(home.logFile, 'a', 0o600)
  try {
    const owner = await stat(home.folder)
    if (isRoot()) await chown(home.logFile, owner.uid, owner.gid)
    const command = [home.binaries.postgres, '-D', home.data, ...args]
    const child = spawn('/bin/sh', ['-c', SCRIPT, 'coppice-postgres', ...command], {
      ...home.account,
      cwd: '/',
      env: serverEnvironment(),
      stdio: ['ignore', logFile.fd, logFile.fd, 'pipe'],
      // A session of its own: Ctrl-C in a terminal must not reach the server before we have drained.
      detached: true,
    })
    return attach(child)
  } finally {
    await logFile.close()
  }
}

async function attach(child: ChildProcess): Promise<Supervised> {
  const lifeline = child.stdio[3] as Socket
  // The server's end shows in `gone`; writing is never done.
  lifeline.on('error', () => {})
  const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  await new Promise<void>((resolve, reject) => child.once('spawn', resolve).once('error', reject))
  return {
    gone,
    end: () => lifeline.destroy(),
    holdProcess: (hold) => {
      if (hold) child.ref()
      else {
        child.unref()
        lifeline.unref()
      }
    },
  }
}

/** The file of the run before last is dropped once the current one is long. */
async function limitLog(file: string): Promise<void> {
  const size = await stat(file).then(
    (found) => found.size,
    () => 0,
  )
  if (size > LOG_LIMIT_BYTES) await rename(file, `${file}.1`).catch(() => {})
}
