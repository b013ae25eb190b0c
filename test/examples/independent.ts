import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { lstatSync, readdirSync, readFileSync } from 'node:fs'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** What digest-folder says of a folder. */
export interface Figures {
  sha256: string
  files: number
  bytes: number
  links: number
  skipped: number
  unreadable: number
}

// Read at once: later this process may have become a user that cannot.
const PROGRAM = readFileSync(new URL('digest.py', import.meta.url), 'utf8')

/** The figures of a folder by a program of another language; by a plain walk in this one where there is no python3. */
export async function figuresOf(folder: string): Promise<Figures> {
  if (!(await hasTool('python3'))) return walk(Buffer.from(folder))
  const { stdout } = await run('python3', ['-c', PROGRAM, folder], { cwd: '/' })
  return JSON.parse(stdout)
}

/** Whether a program is on this machine. */
export async function hasTool(name: string): Promise<boolean> {
  return run(name, ['--version']).then(
    () => true,
    () => false,
  )
}

/** What a shell command writes, without the line's end. */
export async function shell(command: string, folder: string): Promise<string> {
  const { stdout } = await run('bash', ['-c', command], { cwd: folder, env: { ...process.env, LC_ALL: 'C' } })
  return stdout.trim()
}

function walk(folder: Buffer): Figures {
  const figures: Figures = { sha256: '', files: 0, bytes: 0, links: 0, skipped: 0, unreadable: 0 }
  const hash = createHash('sha256')
  for (const name of readdirSync(folder, { encoding: 'buffer' }).sort(Buffer.compare)) {
    const path = Buffer.concat([folder, Buffer.from('/'), name])
    const stat = lstatSync(path)
    try {
      if (stat.isSymbolicLink()) figures.links++
      else if (stat.isDirectory()) {
        const inner = walk(path)
        hash.update(`${inner.sha256}  `).update(name).update('/\0')
        for (const count of ['files', 'bytes', 'links', 'skipped', 'unreadable'] as const) {
          figures[count] += inner[count]
        }
      } else if (stat.isFile()) {
        const content = readFileSync(path)
        hash
          .update(`${createHash('sha256').update(content).digest('hex')}  `)
          .update(name)
          .update('\0')
        figures.files++
        figures.bytes += content.length
      } else figures.skipped++
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EACCES') throw error
      figures.unreadable++
    }
  }
  return { ...figures, sha256: hash.digest('hex') }
}
