import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'

/** What postmaster.pid says of the server that wrote it. `port` and `ready` come only when it has got that far. */
export interface PidFile {
  readonly pid: number
  readonly port: number | undefined
  readonly ready: boolean
}

/** Reads the file in the data folder of PostgreSQL; undefined when there is none. */
export async function readPidFile(data: string): Promise<PidFile | undefined> {
  const text = await readFile(fileIn(data), 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined
    throw error
  })
  if (text === undefined) return undefined
  // Lines: pid, data folder, start time, port, socket folder, address, shared memory, status.
  const lines = text.split('\n')
  const port = Number.parseInt(lines[3] ?? '', 10)
  return {
    pid: Number.parseInt(lines[0] ?? '', 10),
    port: Number.isNaN(port) ? undefined : port,
    ready: lines[7]?.trim() === 'ready',
  }
}

/**
 * Whether `pid` is a server on this data folder, and not another process that was given the number of one that is gone.
 * A process that is dead but not yet collected by its parent counts as gone.
 */
export async function isServerOn(data: string, pid: number): Promise<boolean> {
  const command = await commandLine(pid)
  return command.includes('postgres') && command.includes(data)
}

/**
 * Makes a leftover file harmless whose number now belongs to another process: PostgreSQL would refuse to start. The
 * file is not removed, because its line on shared memory is how PostgreSQL notices that children of the dead server are
 * still at work.
 */
export async function defusePidFile(data: string): Promise<void> {
  const text = await readFile(fileIn(data), 'utf8')
  await writeFile(fileIn(data), text.replace(/^.*/, String(NO_PROCESS)))
}

/** Beyond the greatest process id of any system. */
const NO_PROCESS = 2 ** 31 - 1

function fileIn(data: string): string {
  return path.join(data, 'postmaster.pid')
}

async function commandLine(pid: number): Promise<string> {
  if (!Number.isInteger(pid) || pid <= 0) return ''
  try {
    if (process.platform === 'linux') return await readFile(`/proc/${pid}/cmdline`, 'utf8')
    const { stdout } = await promisify(execFile)('/bin/ps', ['-ww', '-o', 'command=', '-p', String(pid)])
    return stdout
  } catch {
    return ''
  }
}
