import { parse, stringify } from 'uuid'
import { InvalidCursorError } from '../errors.ts'
import { isSnapshot, type Snapshot } from './snapshot.ts'
import { readVarint, writeVarint } from './varint.ts'

/**
 * A place in the log: everything visible in `from` has been read, in the log of this epoch. In the middle of a window
 * also what is visible in `window.to`, up to the event `window.lastId`.
 */
export interface FeedCursor {
  readonly epoch: string
  readonly from: Snapshot
  readonly window?: {
    readonly to: Snapshot
    /** A decimal number. */
    readonly lastId: string
  }
}

const VERSION = 1
const EPOCH_BYTES = 16
const MAX_ID = 2n ** 63n - 1n
/** Far more than a snapshot of 10,000 open transactions takes. */
const MAX_LENGTH = 100_000

/**
 * The opaque text of a cursor: base64url of version, epoch and snapshots, these as differences, so that a snapshot with
 * 149 open transactions takes some 200 bytes.
 */
export function encodeCursor(cursor: FeedCursor): string {
  const bytes = [VERSION, ...parse(cursor.epoch)]
  writeSnapshot(bytes, cursor.from)
  if (cursor.window !== undefined) {
    writeSnapshot(bytes, cursor.window.to)
    writeVarint(bytes, BigInt(cursor.window.lastId))
  }
  return Buffer.from(bytes).toString('base64url')
}

/**
 * Reads what {@link encodeCursor} wrote; no two texts are the same cursor.
 *
 * @throws {InvalidCursorError} for anything else.
 */
export function decodeCursor(text: string): FeedCursor {
  const cursor = text.length <= MAX_LENGTH ? decode(Buffer.from(text, 'base64url')) : undefined
  if (cursor === undefined || encodeCursor(cursor) !== text) {
    throw new InvalidCursorError('Not a cursor of this feed.')
  }
  return cursor
}

function decode(bytes: Uint8Array): FeedCursor | undefined {
  if (bytes[0] !== VERSION) return undefined
  const epoch = epochOf(bytes.subarray(1, 1 + EPOCH_BYTES))
  const rest = { bytes, offset: 1 + EPOCH_BYTES }
  const from = readSnapshot(rest)
  if (epoch === undefined || from === undefined) return undefined
  if (rest.offset === bytes.length) return { epoch, from }
  const to = readSnapshot(rest)
  const lastId = readVarint(rest)
  if (to === undefined || lastId === undefined || lastId > MAX_ID || rest.offset !== bytes.length) return undefined
  return { epoch, from, window: { to, lastId: String(lastId) } }
}

function epochOf(bytes: Uint8Array): string | undefined {
  try {
    return stringify(bytes)
  } catch {
    return undefined
  }
}

function writeSnapshot(bytes: number[], { xmin, xmax, xip }: Snapshot): void {
  writeVarint(bytes, xmin)
  writeVarint(bytes, xmax - xmin)
  writeVarint(bytes, BigInt(xip.length))
  let last = xmin
  for (const xid of xip) {
    writeVarint(bytes, xid - last)
    last = xid
  }
}

function readSnapshot(from: { bytes: Uint8Array; offset: number }): Snapshot | undefined {
  const xmin = readVarint(from)
  const width = readVarint(from)
  const count = readVarint(from)
  // Each xid takes a byte at least: a wild count is refused before anything of that size is made.
  if (xmin === undefined || width === undefined || count === undefined) return undefined
  if (count > BigInt(from.bytes.length - from.offset)) return undefined
  const xip: bigint[] = []
  let last = xmin
  for (let n = 0; n < Number(count); n++) {
    const step = readVarint(from)
    if (step === undefined) return undefined
    last += step
    xip.push(last)
  }
  const snapshot = { xmin, xmax: xmin + width, xip }
  return isSnapshot(snapshot) ? snapshot : undefined
}
