/** Bits that fit into the ten bytes that a 64-bit number takes at most. */
const MAX_SHIFT = 63n

/** Appends a number, seven bits a byte, the low ones first; the high bit says that more follow. */
export function writeVarint(bytes: number[], value: bigint): void {
  let rest = value
  while (rest >= 0x80n) {
    bytes.push(Number(rest & 0x7fn) | 0x80)
    rest >>= 7n
  }
  bytes.push(Number(rest))
}

/** Reads a number and moves the offset behind it; undefined when there is none of at most ten bytes. */
export function readVarint(from: { readonly bytes: Uint8Array; offset: number }): bigint | undefined {
  let value = 0n
  for (let shift = 0n; shift <= MAX_SHIFT; shift += 7n) {
    const byte = from.bytes[from.offset]
    if (byte === undefined) return undefined
    from.offset++
    value |= BigInt(byte & 0x7f) << shift
    if (byte < 0x80) return value
  }
  return undefined
}
