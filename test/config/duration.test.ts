import { expect, test } from 'vitest'
import { parseDuration } from '../../src/engine/duration.ts'

test.each([
  ['500ms', 500],
  ['30s', 30_000],
  ['5m', 300_000],
  ['2h', 7_200_000],
  ['1d', 86_400_000],
  ['1.5h', 5_400_000],
  ['250', 250],
  [' 1s ', 1_000],
  ['0', 0],
  [0, 0],
  [1_500, 1_500],
])('%j is %i ms', (given, ms) => {
  expect(parseDuration(given)).toBe(ms)
})

test.each([
  '',
  's',
  '5 m',
  '5min',
  '-1s',
  '1e3',
  '1h30m',
  '5M',
  '.5s',
  'Infinity',
  '5000d',
  -1,
  1.5,
  Number.NaN,
  Infinity,
])('%j is not a duration', (given) => {
  expect(() => parseDuration(given)).toThrow(RangeError)
})
