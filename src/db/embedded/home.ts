import { randomBytes } from 'node:crypto'
import {
  chmod,
  chown,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  readlink,
  realpath,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { type Account, accountFor, canEnter, isRoot, runAs } from './account.ts'
import { type Binaries, findBinaries } from './binaries.ts'
import { EmbeddedDataError, EmbeddedDataVersionError, EmbeddedUnavailableError } from './errors.ts'

/**
 * What one embedded server lives in: `<data folder>/postgres`, made as a whole and renamed into place, so that it is
 * either complete or absent. Where the account of PostgreSQL cannot enter the data folder (root's home is closed to
 * others), `postgres` is a link to a folder it can.
 */
export interface Home {
  /** The real path of the folder. */
  readonly folder: string
  /** PostgreSQL's own data folder (PGDATA). */
  readonly data: string
  /** Where the server writes. */
  readonly logFile: string
  readonly password: string
  readonly account: Account
  readonly binaries: Binaries
}

export const SUPERUSER = 'coppice'

/** An initialisation takes a second; what is older was interrupted. */
const INTERRUPTED_AFTER_MS = 10 * 60_000

/**
 * Opens the home in `dataDir`, making it first if it is not there. Safe to call in several processes at once: the
 * first to finish wins and the others use its home.
 * @param durable whether what is made must survive a crash of the machine
 * @throws EmbeddedUnavailableError, EmbeddedDataError, EmbeddedDataVersionError
 */
export async function openHome(dataDir: string, durable: boolean, log: (line: string) => void): Promise<Home> {
  await mkdir(dataDir, { recursive: true, mode: isRoot() ? 0o711 : 0o700 })
  await removeInterrupted(dataDir)
  const link = path.join(dataDir, 'postgres')
  for (let attempt = 0; attempt < 5; attempt++) {
    const folder = await realpath(link).catch(() => undefined)
    if (folder === undefined) {
      await refuseLostTarget(link)
      await makeHome(dataDir, link, durable, log)
    } else if (await isWhole(folder)) {
      return await readHome(folder)
    } else {
      const aside = `${link}.broken-${Date.now()}`
      log(`${folder} holds no complete database: set aside as ${aside}`)
      await rename(link, aside).catch(ignoreMissing)
    }
  }
  throw new EmbeddedDataError(`${link} cannot be made: something removes it again and again`)
}

async function readHome(folder: string): Promise<Home> {
  const data = path.join(folder, 'data')
  const account = accountFor(await stat(data))
  const binaries = await findBinaries(account)
  const major = (await readFile(path.join(data, 'PG_VERSION'), 'utf8')).trim()
  if (major !== binaries.major) throw new EmbeddedDataVersionError(data, major, binaries.major)
  const passwordFile = path.join(folder, 'password')
  const password = await readFile(passwordFile, 'utf8').catch((error) => {
    throw new EmbeddedDataError(`The password of the database in ${folder} cannot be read: ${error.message}`)
  })
  return { folder, data, logFile: path.join(folder, 'server.log'), password: password.trim(), account, binaries }
}

/** A home made by us is always whole; one without these files was made or damaged by somebody else. */
async function isWhole(folder: string): Promise<boolean> {
  try {
    await stat(path.join(folder, 'data', 'PG_VERSION'))
    await stat(path.join(folder, 'data', 'global', 'pg_control'))
    return true
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR') return false
    throw new EmbeddedDataError(`The database in ${folder} cannot be read by this user: ${message}`)
  }
}

/** A link that leads nowhere means data that are missing, perhaps for a moment only: never begin anew beside them. */
async function refuseLostTarget(link: string): Promise<void> {
  const target = await readlink(link).catch(() => undefined)
  if (target === undefined) return
  throw new EmbeddedDataError(
    `${link} says that the database is in ${target}, which is not there. Bring it back, or remove ${link} to begin anew.`,
  )
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error
}

async function makeHome(dataDir: string, link: string, durable: boolean, log: (line: string) => void): Promise<void> {
  const account = accountFor()
  const binaries = await findBinaries(account)
  const outside = await reachableParent(dataDir, account, durable)
  // Elsewhere the folder keeps its first name for good, and the link is what makes it known.
  const folder = await mkdtemp(path.join(outside ?? dataDir, outside === undefined ? 'postgres.new-' : 'postgres-'))
  log(`making a database of PostgreSQL ${binaries.version} in ${outside === undefined ? link : folder}`)
  let used = false
  try {
    await initialise(folder, account, binaries, durable)
    if (outside === undefined) await rename(folder, link)
    else await symlink(folder, link)
    used = true
    if (durable) await syncFolder(dataDir)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    // Another process was faster; its home is used.
    if (code !== 'EEXIST' && code !== 'ENOTEMPTY') throw error
  } finally {
    if (!used) await rm(folder, { recursive: true, force: true })
  }
}

/**
 * Undefined when `account` can enter the data folder, otherwise a folder to use in its place: one that outlasts a
 * restart of the machine where the data are to last.
 */
async function reachableParent(dataDir: string, account: Account, durable: boolean): Promise<string | undefined> {
  if (!isRoot()) return undefined
  if (await canEnter(account, dataDir)) return undefined
  // The folder is ours, so letting others pass through it (not read it) is ours to decide; those above it are not.
  await chmod(dataDir, ((await stat(dataDir)).mode & 0o7777) | 0o011)
  if (await canEnter(account, dataDir)) return undefined
  const parents = durable ? ['/var/lib/coppice'] : [os.tmpdir(), '/var/tmp', '/var/lib/coppice']
  for (const parent of parents) {
    const made = await mkdir(parent, { recursive: true, mode: 0o711 }).then(
      () => true,
      () => false,
    )
    if (made && (await canEnter(account, parent))) return parent
  }
  throw new EmbeddedUnavailableError(
    `as root it runs under the user id ${account.uid}, which can enter neither ${dataDir} nor ${parents.join(' nor ')}; ` +
      'choose a data folder that others can pass through (COPPICE_DATA_DIR)',
  )
}

async function initialise(folder: string, account: Account, binaries: Binaries, durable: boolean): Promise<void> {
  await chmod(folder, isRoot() ? 0o711 : 0o700)
  const data = path.join(folder, 'data')
  const password = randomBytes(24).toString('hex')
  // initdb reads the password as the other account, so it gets a copy of its own for that moment.
  const passwordForInitdb = path.join(folder, 'password.initdb')
  await mkdir(data, { mode: 0o700 })
  await writeFile(path.join(folder, 'password'), password, { mode: 0o600 })
  await writeFile(passwordForInitdb, password, { mode: 0o600 })
  try {
    for (const file of account.uid === undefined ? [] : [data, passwordForInitdb]) {
      await chown(file, account.uid!, account.gid!)
    }
    await runAs(account, binaries.initdb, [
      `--pgdata=${data}`,
      `--username=${SUPERUSER}`,
      `--pwfile=${passwordForInitdb}`,
      '--auth=scram-sha-256',
      '--encoding=UTF8',
      // Built in from PostgreSQL 17 on: the same order of text on every system, whatever locales it has.
      '--locale-provider=builtin',
      '--builtin-locale=C.UTF-8',
      '--locale=C',
      '--no-instructions',
      ...(durable ? [] : ['--no-sync']),
    ])
  } catch (error) {
    const { stderr, message } = error as Error & { stderr?: string }
    throw new EmbeddedUnavailableError(`initdb failed in ${folder} (${stderr?.trim() || message})`)
  } finally {
    await rm(passwordForInitdb, { force: true })
  }
}

async function removeInterrupted(dataDir: string): Promise<void> {
  for (const name of await readdir(dataDir)) {
    if (!name.startsWith('postgres.new-')) continue
    const full = path.join(dataDir, name)
    const found = await stat(full).catch(() => undefined)
    if (found !== undefined && Date.now() - found.mtimeMs > INTERRUPTED_AFTER_MS) {
      await rm(full, { recursive: true, force: true })
    }
  }
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
