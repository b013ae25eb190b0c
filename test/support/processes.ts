import { readdir, readFile, readlink } from 'node:fs/promises'

/** Ids of all processes that have `folder` in their command line or work in it. Linux only: it reads /proc. */
export async function processesOn(folder: string): Promise<number[]> {
  const pids = (await readdir('/proc')).map(Number).filter((pid) => pid > 0 && pid !== process.pid)
  const found = await Promise.all(
    pids.map(async (pid) => {
      const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
      const where = await readlink(`/proc/${pid}/cwd`).catch(() => '')
      return command.includes(folder) || where.startsWith(folder)
    }),
  )
  return pids.filter((_, index) => found[index])
}
