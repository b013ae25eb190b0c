import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const execFileAsync = promisify(execFile)

/** The account whose processes run PostgreSQL. Both numbers are absent when it is simply our own. */
export interface Account {
  readonly uid?: number
  readonly gid?: number
}

/** "nobody": PostgreSQL refuses to run as root, and adding a user to the host is not ours to do. */
const NOBODY: Account = { uid: 65534, gid: 65534 }

/** Whether this process is root, and PostgreSQL therefore needs another account. */
export function isRoot(): boolean {
  return process.getuid?.() === 0
}

/**
 * The account to run PostgreSQL as. Root gives its rights up to the owner of an existing data folder, so that a folder
 * made by an ordinary user stays usable by that user, and to "nobody" for a new one.
 */
export function accountFor(owner?: { uid: number; gid: number }): Account {
  if (!isRoot()) return {}
  return owner !== undefined && owner.uid !== 0 ? { uid: owner.uid, gid: owner.gid } : NOBODY
}

/**
 * The environment of every process of PostgreSQL: none of the caller's PG… variables may reach it (PGPORT, PGTZ and
 * others change settings), and its messages must be in English because some of them are read.
 */
export function serverEnvironment(): NodeJS.ProcessEnv {
  return { PATH: process.env.PATH ?? '/usr/bin:/bin', LC_ALL: 'C' }
}

/**
 * Runs a program as `account` to its end and gives its standard output.
 * @throws what `execFile` throws: an error with `code` and `stderr`
 */
export async function runAs(account: Account, file: string, args: readonly string[]): Promise<string> {
  // The current folder may be closed to the account, so the program starts in one that never is.
  const { stdout } = await execFileAsync(file, args, { ...account, cwd: '/', env: serverEnvironment() })
  return stdout
}

/** Whether `account` can enter `folder`: asked by doing it, since every folder above it has a say too. */
export async function canEnter(account: Account, folder: string): Promise<boolean> {
  try {
    await runAs(account, '/bin/sh', ['-c', 'cd -- "$1"', 'sh', folder])
    return true
  } catch {
    return false
  }
}
