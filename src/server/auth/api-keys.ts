import { createHash, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Viewer } from '../../resolvers/viewer.ts'
import type { ApiKeyEntry } from '../../settings/api-key.ts'

/** What keys begin with, so that they are known for what they are where they should not be. */
const PREFIX = 'coppice_'

/** A new key: 256 random bits, which no search finds, so that a plain hash of it is enough. */
export function makeApiKey(): string {
  return `${PREFIX}${randomBytes(32).toString('base64url')}`
}

/** What is kept of a key. */
export function hashApiKey(key: string): string {
  return digest(key).toString('hex')
}

/** Finds whose key it is; the time that takes tells nothing of the keys. */
export function createApiKeyCheck(entries: readonly ApiKeyEntry[]): (key: string) => Viewer | null {
  const known = entries.map(({ name, role, hash }) => ({ viewer: { name, role }, hash: Buffer.from(hash, 'hex') }))
  return (key) => {
    const given = digest(key)
    let found: Viewer | null = null
    for (const { viewer, hash } of known) if (timingSafeEqual(hash, given)) found = viewer
    return found
  }
}

function digest(key: string): Buffer {
  return createHash('sha256').update(key).digest()
}
