import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { InvalidCursorError } from '../../src/engine/errors.ts'
import { decodeCursor, encodeCursor, type FeedCursor } from '../../src/engine/feed/cursor.ts'
import { covers, formatSnapshot, MAX_XID, parseSnapshot, type Snapshot } from '../../src/engine/feed/snapshot.ts'

const snapshots: fc.Arbitrary<Snapshot> = fc
  .record({
    xmin: fc.bigInt({ min: 1n, max: MAX_XID - 2n ** 33n }),
    steps: fc.array(fc.bigInt({ min: 1n, max: 2n ** 25n }), { maxLength: 200 }),
    beyond: fc.bigInt({ min: 0n, max: 2n ** 32n }),
    xminOpen: fc.boolean(),
  })
  .map(({ xmin, steps, beyond, xminOpen }) => {
    const xip = steps.length > 0 && xminOpen ? [xmin] : []
    let last = xmin
    for (const step of steps) {
      last += step
      xip.push(last)
    }
    return { xmin, xmax: xip.length > 0 ? last + 1n + beyond : xmin + beyond, xip }
  })

const cursors: fc.Arbitrary<FeedCursor> = fc.record(
  {
    epoch: fc.uuid(),
    from: snapshots,
    window: fc.record({ to: snapshots, lastId: fc.bigInt({ min: 0n, max: 2n ** 63n - 1n }).map(String) }),
  },
  { requiredKeys: ['epoch', 'from'] },
)

function refused(text: string): boolean {
  try {
    decodeCursor(text)
    return false
  } catch (error) {
    if (!(error instanceof InvalidCursorError)) throw error
    return true
  }
}

describe('cursor', () => {
  test('is read as it was written', () => {
    fc.assert(
      fc.property(cursors, (cursor) => {
        expect(decodeCursor(encodeCursor(cursor))).toEqual(cursor)
      }),
    )
  })

  test('any text is refused with InvalidCursorError, or is exactly what its cursor is written as', () => {
    const bytes = fc.uint8Array({ maxLength: 80 }).map((array) => Buffer.from([1, ...array]).toString('base64url'))
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.string({ unit: 'binary' }), bytes), (text) => {
        expect(refused(text) || encodeCursor(decodeCursor(text)) === text).toBe(true)
      }),
      { numRuns: 5_000 },
    )
  })

  test('a cursor that was cut, extended or changed by a byte is refused or another cursor', () => {
    fc.assert(
      fc.property(cursors, fc.nat(), fc.integer({ min: 1, max: 255 }), (cursor, at, flip) => {
        const text = encodeCursor(cursor)
        const bytes = Buffer.from(text, 'base64url')
        const cut = bytes.subarray(0, at % bytes.length)
        const longer = Buffer.concat([bytes, Buffer.from([flip])])
        const changed = Buffer.from(bytes)
        changed[at % bytes.length]! ^= flip
        for (const other of [cut, longer, changed].map((buffer) => buffer.toString('base64url'))) {
          if (!refused(other)) expect(decodeCursor(other)).not.toEqual(cursor)
        }
        for (const padded of [`${text}=`, ` ${text}`, `${text}\n`]) expect(refused(padded)).toBe(true)
      }),
    )
  })

  test('snapshots are kept small: 149 open transactions take about 200 bytes', () => {
    const xip = Array.from({ length: 149 }, (_, n) => 4_000_000_000n + BigInt(n) * 2n)
    const from = { xmin: xip[0]!, xmax: xip.at(-1)! + 5n, xip }
    const text = encodeCursor({ epoch: '0e5b8b0e-6a2f-4c0a-9d4e-3c1d1b0c2f11', from })
    expect(Buffer.from(text, 'base64url').length).toBeLessThan(185)
    expect(formatSnapshot(from).length).toBeGreaterThan(1_600)
  })

  test('a wild count is refused before anything of its size is made', () => {
    const count = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]
    const text = Buffer.from([1, ...new Array(16).fill(0x44), 5, 5, ...count]).toString('base64url')
    expect(refused(text)).toBe(true)
    expect(refused('A'.repeat(1_000_000))).toBe(true)
  })
})

describe('snapshot', () => {
  test('is read as it is written', () => {
    fc.assert(
      fc.property(snapshots, (snapshot) => {
        expect(parseSnapshot(formatSnapshot(snapshot))).toEqual(snapshot)
      }),
    )
  })

  test.each([
    '',
    '1:1',
    '0:1:',
    '2:1:',
    '1:5:5',
    '1:5:0',
    '1:5:3,2',
    '1:5:2,2',
    '1:5:2,',
    'a:b:c',
    '1:18446744073709551616:',
  ])('%j is none', (text) => expect(parseSnapshot(text)).toBeUndefined())

  test('of two that were taken one after the other, the later covers the earlier, and only the same covers both ways', () => {
    // A history: transactions begin and end; after each step a snapshot is taken.
    const history = fc.array(fc.record({ begin: fc.boolean(), pick: fc.nat() }), { minLength: 2, maxLength: 60 })
    fc.assert(
      fc.property(history, (steps) => {
        let next = 10n
        let xmax = 10n
        const open: bigint[] = []
        const taken: Snapshot[] = []
        for (const { begin, pick } of steps) {
          if (begin || open.length === 0) open.push(next++)
          else {
            // PostgreSQL's xmax is behind the last transaction that has ended.
            const [ended] = open.splice(pick % open.length, 1)
            if (ended! >= xmax) xmax = ended! + 1n
          }
          const xip = open.filter((xid) => xid < xmax)
          taken.push({ xmin: xip[0] ?? xmax, xmax, xip })
        }
        for (const [n, earlier] of taken.entries()) {
          for (const later of taken.slice(n)) {
            expect(covers(later, earlier)).toBe(true)
            expect(covers(earlier, later)).toBe(formatSnapshot(earlier) === formatSnapshot(later))
          }
        }
      }),
    )
  })
})
