import { expect, test } from 'vitest'
import { TextCache } from '../../src/server/text-cache.ts'

test('keeps so many characters, and lets the least used go first', () => {
  const cache = new TextCache<number>(10)
  cache.set('aaaa', 1)
  cache.set('bbbb', 2)
  expect(cache.get('aaaa')).toBe(1)
  cache.set('cccc', 3)
  expect(['aaaa', 'bbbb', 'cccc'].map((text) => cache.get(text))).toEqual([1, undefined, 3])
  cache.set('cccc', 4)
  expect([cache.get('cccc'), cache.length]).toEqual([4, 8])
  cache.set('x'.repeat(11), 5)
  expect([cache.get('x'.repeat(11)), cache.length]).toEqual([undefined, 8])
  cache.set('x'.repeat(10), 6)
  expect([cache.get('aaaa'), cache.get('cccc'), cache.length]).toEqual([undefined, undefined, 10])
})
