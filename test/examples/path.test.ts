import fc from 'fast-check'
import { expect, test } from 'vitest'
import { joinPath, keyOfName, nameOfKey, pathBytes, pathPayload, toPathPayload } from '../../examples/path.ts'

/** Any name that a file may have: bytes without NUL and slash. */
const name = fc
  .uint8Array({ min: 1, minLength: 1, maxLength: 255 })
  .map((bytes) => Buffer.from(bytes.map((byte) => (byte === 0x2f ? 0x2e : byte))))

const names = fc.oneof(
  name,
  fc.constantFrom('a', 'base64', '\ufeffbom', 'line\nfeed', '学校', '"\'\\').map((text) => Buffer.from(text)),
)

test('any path comes back from its payload, and any name from its key', () => {
  fc.assert(
    fc.property(names, names, (folder, file) => {
      const path = joinPath(joinPath(Buffer.from('/srv'), folder), file)
      const payload = JSON.parse(JSON.stringify(toPathPayload(path)))
      expect(pathBytes(pathPayload.parse(payload))).toEqual(path)
      expect(nameOfKey(keyOfName(file))).toEqual(file)
    }),
    { numRuns: 1000 },
  )
})

test('no two names have one key', () => {
  fc.assert(
    fc.property(names, names, (a, b) => {
      fc.pre(!a.equals(b))
      expect(keyOfName(a)).not.toBe(keyOfName(b))
    }),
  )
  expect(keyOfName(Buffer.from([0x61, 0xff]))).toBe('base64/Yf8=')
})

test('a relative path starts at the working directory', () => {
  expect(pathBytes({ path: 'README.md' }).toString()).toBe(`${process.cwd()}/README.md`)
  expect(pathBytes({ path: '/README.md' }).toString()).toBe('/README.md')
})
