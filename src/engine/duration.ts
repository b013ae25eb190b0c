const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** Longest duration that is taken: ten years, in ms. */
export const MAX_DURATION_MS = 3653 * UNITS.d

/**
 * Milliseconds of a duration: text such as `500ms`, `30s`, `5m`, `2h`, `1.5d`, or whole milliseconds.
 *
 * @throws {RangeError} when it is malformed, negative or longer than ten years.
 */
export function parseDuration(value: string | number): number {
  const ms = typeof value === 'number' ? value : fromText(value)
  if (!Number.isInteger(ms) || ms < 0 || ms > MAX_DURATION_MS) {
    throw new RangeError(`Not a duration: ${JSON.stringify(value)}. Expected e.g. 500ms, 30s, 5m, 2h, 1d or whole ms.`)
  }
  return ms
}

function fromText(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(String(text).trim())
  if (!match) return Number.NaN
  return Math.round(Number(match[1]) * UNITS[(match[2] ?? 'ms') as keyof typeof UNITS])
}
