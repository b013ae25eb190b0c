import { createHash } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { z } from 'zod'
import { type Child, declareJob, defineJob, PermanentError } from '../src/index.ts'
import { joinPath, keyOfName, nameOfKey, pathBytes, pathPayload, toPathPayload } from './path.ts'
import { readable } from './readable.ts'
import { withRegularFile } from './regular-file.ts'

/** Progress is worth a write only for files that take a while. In bytes. */
const LARGE_FILE = 64 * 1024 * 1024

/** SHA-256 of one regular file's content, and its length. */
export const digestFile = declareJob({
  type: 'digest-file',
  payload: pathPayload,
  result: z.object({ sha256: z.string(), bytes: z.number() }),
})

/**
 * Digest of a whole folder. Its files and its sub-folders are its children, with their names as keys; a sub-folder is a
 * two-phase parent itself.
 *
 * - `sha256` of a folder: SHA-256 over one line for each file and sub-folder in it, sorted by the bytes of their names:
 *   `<sha256>  <name>` for a file and `<sha256>  <name>/` for a sub-folder, each ended by a NUL byte. That is what
 *   `sha256sum -z` prints, so for a folder without sub-folders this is the same figure:
 *   `find . -maxdepth 1 -type f -printf '%f\0' | LC_ALL=C sort -z | xargs -0 sha256sum -z -- | sha256sum`
 * - `files` and `bytes`: the regular files at any depth and the sum of their lengths.
 * - `links`: symbolic links, not followed and no part of the digest.
 * - `skipped`: sockets, pipes and devices, no part of it either.
 * - `unreadable`: files and folders that could not be read, or were gone when their turn came. Each is left out of the
 *   digest, so two folders are known to be equal only if this is 0.
 */
export const digestFolder = declareJob({
  type: 'digest-folder',
  payload: pathPayload,
  result: z.object({
    sha256: z.string(),
    files: z.number(),
    bytes: z.number(),
    links: z.number(),
    skipped: z.number(),
    unreadable: z.number(),
  }),
  /** What ingest saw that became no child. */
  checkpoint: z.object({ links: z.number(), skipped: z.number() }),
})

export const digestFileJob = defineJob(digestFile, {
  run(ctx) {
    return withRegularFile(pathBytes(ctx.payload), async (file, size) => {
      const hash = createHash('sha256')
      const buffer = Buffer.allocUnsafe(Math.min(size + 1, 256 * 1024))
      let bytes = 0
      for (;;) {
        ctx.signal.throwIfAborted()
        const { bytesRead } = await file.read(buffer)
        if (bytesRead === 0) break
        hash.update(buffer.subarray(0, bytesRead))
        bytes += bytesRead
        if (size >= LARGE_FILE) ctx.progress(bytes, size, 'bytes')
      }
      return { sha256: hash.digest('hex'), bytes }
    })
  },
})

export const digestFolderJob = defineJob(digestFolder, {
  async ingest(ctx) {
    const folder = pathBytes(ctx.payload)
    const children = []
    let links = 0
    let skipped = 0
    for (const entry of await readable(readdir(folder, { withFileTypes: true, encoding: 'buffer' }))) {
      const payload = toPathPayload(joinPath(folder, entry.name))
      const options = { key: keyOfName(entry.name) }
      if (entry.isFile()) children.push(digestFile.with(payload, options))
      else if (entry.isDirectory()) children.push(digestFolder.with(payload, options))
      else if (entry.isSymbolicLink()) links++
      else skipped++
    }
    await ctx.save({ links, skipped })
    await ctx.spawn(children)
  },

  async aggregate(ctx) {
    const { links, skipped } = ctx.saved ?? { links: 0, skipped: 0 }
    const total = { files: 0, bytes: 0, links, skipped, unreadable: 0 }
    const entries: Entry[] = []
    for await (const child of ctx.children(digestFile)) {
      if (child.state === 'completed') {
        entries.push(entryOf(child.key, child.result.sha256, ''))
        total.files++
        total.bytes += child.result.bytes
      } else {
        assertUnreadable(child)
        total.unreadable++
      }
    }
    for await (const child of ctx.children(digestFolder)) {
      if (child.state === 'completed') {
        entries.push(entryOf(child.key, child.result.sha256, '/'))
        for (const count of ['files', 'bytes', 'links', 'skipped', 'unreadable'] as const) {
          total[count] += child.result[count]
        }
      } else {
        assertUnreadable(child)
        total.unreadable++
      }
    }
    return { sha256: digestOf(entries), ...total }
  },
})

/** One file or sub-folder of a folder, as its digest has it. */
interface Entry {
  name: Buffer
  line: Buffer
}

function entryOf(key: string | null, sha256: string, suffix: '' | '/'): Entry {
  const name = nameOfKey(key ?? '')
  return { name, line: Buffer.concat([Buffer.from(`${sha256}  `), name, Buffer.from(`${suffix}\0`)]) }
}

function digestOf(entries: Entry[]): string {
  const hash = createHash('sha256')
  for (const { line } of entries.sort((a, b) => Buffer.compare(a.name, b.name))) hash.update(line)
  return hash.digest('hex')
}

/** What the file system refuses is part of the answer. Anything else means that the digest is not known. */
function assertUnreadable(child: Exclude<Child<unknown, unknown>, { state: 'completed' }>): void {
  if (child.state === 'failed' && ['PARSE', 'NOT_FOUND', 'VALIDATION'].includes(child.error.code)) return
  const why = child.state === 'failed' ? child.error.message : `cancelled (${child.cancelCode})`
  throw new PermanentError(`No digest of ${child.key}: ${why}`, { code: 'CHILD_FAILED' })
}
