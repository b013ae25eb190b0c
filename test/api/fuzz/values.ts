import type { Random } from './random.ts'

const NUL = '\u0000'

/** Texts that have broken things before. */
const TEXTS = [
  '',
  ' ',
  'a',
  NUL,
  `a${NUL}b`,
  '\ud800',
  '\udfff\ud800',
  '\u202e',
  '😀'.repeat(50),
  'x'.repeat(5000),
  "'; drop table job; --",
  '" or 1=1',
  '%s%n%d',
  '../../../../x',
  '{{7*7}}',
  '<script>',
  '__proto__',
  'constructor',
  'toString',
  'NaN',
  'null',
  '-1',
  '1e999',
  '9'.repeat(400),
  'JB_',
  'JB_01890000-0000-7000-8000-000000000000',
  '01890000-0000-7000-8000-00000000000g',
  'EV_1',
  'EV_-1',
  'EV_99999999999999999999999',
  'WK_01890000-0000-7000-8000-000000000000',
  'AS_',
  'AS_a',
  'AS_a\nb',
  'eyJ2IjoxfQ==',
  'c1.',
  'v1:0:0',
  '2020-02-30T00:00:00Z',
  '0000-01-01T00:00:00Z',
  '+275760-09-13T00:00:00.000Z',
  '-271821-04-20T00:00:00.000Z',
  '9999-12-31T23:59:59.999Z',
  '1h',
  '-1s',
  '999999999999d',
  '101%',
  '10%',
]

const NUMBERS = [
  0,
  -0,
  1,
  -1,
  2,
  20,
  100,
  101,
  10_000,
  2 ** 31 - 1,
  2 ** 31,
  -(2 ** 31),
  2 ** 53,
  1e308,
  0.1,
  -0.5,
  1e-320,
]

/** A hostile text. Ids of real jobs are among them. */
export function anyText(random: Random, ids: readonly string[]): string {
  return random.chance(0.3) && ids.length > 0 ? random.pick(ids) : random.pick(TEXTS)
}

export function anyNumber(random: Random): number {
  return random.chance(0.3) ? random.below(120) : random.pick(NUMBERS)
}

/** Any JSON value, some of it deep. */
export function anyJson(random: Random, ids: readonly string[], depth = 0): unknown {
  switch (random.below(depth > 4 ? 4 : 8)) {
    case 0:
      return anyText(random, ids)
    case 1:
      return anyNumber(random)
    case 2:
      return null
    case 3:
      return random.chance(0.5)
    case 4:
      return random.times(random.below(4), () => anyJson(random, ids, depth + 1))
    case 5: {
      let value: unknown = 1
      for (let level = random.below(200); level > 0; level--) value = random.chance(0.5) ? [value] : { a: value }
      return value
    }
    default:
      return Object.fromEntries(
        random.times(random.below(4), () => [anyText(random, ids), anyJson(random, ids, depth + 1)]),
      )
  }
}
