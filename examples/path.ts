import { isUtf8 } from 'node:buffer'
import { isAbsolute } from 'node:path'
import { z } from 'zod'

/**
 * A path in a payload. Names on disk are bytes, JSON strings are not: a path that is not UTF-8 is given in base64, so
 * that no file is lost for its name.
 */
export const pathPayload = z.object({
  /** Absolute, or relative to the worker's working directory. */
  path: z.string().min(1),
  /** How `path` is written; absent is `utf8`. */
  encoding: z.enum(['utf8', 'base64']).optional(),
})
export type PathPayload = z.infer<typeof pathPayload>

// No name on disk holds a slash, so no UTF-8 name is mistaken for this.
const BASE64_KEY = 'base64/'

/** The bytes of a path, absolute. */
export function pathBytes({ path, encoding }: PathPayload): Buffer {
  const bytes = encoding === 'base64' ? Buffer.from(path, 'base64') : Buffer.from(path)
  return isAbsolute(bytes.toString('latin1')) ? bytes : joinPath(Buffer.from(process.cwd()), bytes)
}

/** A folder's path and a name in it. */
export function joinPath(folder: Buffer, name: Buffer): Buffer {
  return Buffer.concat([folder, Buffer.from('/'), name])
}

/** The payload that {@link pathBytes} reads these bytes from. */
export function toPathPayload(bytes: Buffer): PathPayload {
  return isUtf8(bytes) ? { path: bytes.toString() } : { path: bytes.toString('base64'), encoding: 'base64' }
}

/** A name as a job's key: the name itself, or `base64/…` if it is not UTF-8. {@link nameOfKey} reads it back. */
export function keyOfName(name: Buffer): string {
  return isUtf8(name) ? name.toString() : BASE64_KEY + name.toString('base64')
}

/** The name that {@link keyOfName} made a key of. */
export function nameOfKey(key: string): Buffer {
  return key.startsWith(BASE64_KEY) ? Buffer.from(key.slice(BASE64_KEY.length), 'base64') : Buffer.from(key)
}
