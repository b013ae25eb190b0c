import { createHash } from 'node:crypto'

/** PostgreSQL cuts longer names. */
const MAX_BYTES = 63

/** The channel on which the processes of one installation ring: `coppice_<schema>`, or a digest if that is too long. */
export function channelName(schema: string): string {
  const name = `coppice_${schema}`
  if (Buffer.byteLength(name) <= MAX_BYTES) return name
  return `coppice_${createHash('sha256').update(schema).digest('hex').slice(0, 32)}`
}
