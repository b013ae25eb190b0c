import { formatJobId } from '../ids.ts'

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1000],
] as const

/** `2 d 3 h`, `5 min 10 s`, `12 s`, `less than a second`: at most two units, never negative. */
export function ageText(ms: number): string {
  const first = UNITS.findIndex(([, size]) => ms >= size)
  const unit = UNITS[first]
  if (!unit) return 'less than a second'
  const next = UNITS[first + 1]
  const rest = next ? Math.floor((ms % unit[1]) / next[1]) : 0
  const whole = `${Math.floor(ms / unit[1])} ${unit[0]}`
  return next && rest > 0 ? `${whole} ${rest} ${next[0]}` : whole
}

/** `2030-01-31T08:00:00Z`: seconds are enough for people. */
export function instantText(at: Date): string {
  return at.toISOString().replace(/\.\d+Z$/, 'Z')
}

/** `1 child`, `2,000 children`. */
export function countText(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`
}

/** `JB_… (digest-file a.md)`: what a person finds a job by. */
export function jobText(job: { id: string; type: string; key?: string | null }): string {
  return `${formatJobId(job.id)} (${job.type}${job.key ? ` ${job.key}` : ''})`
}

/** `a`, `a and b`, `a, b and 3 more`: at most `most` of them by name. */
export function listText(names: readonly string[], most = 5): string {
  const shown = names.length <= most ? [...names] : names.slice(0, most - 1)
  const rest = names.length - shown.length
  if (rest > 0) shown.push(`${rest.toLocaleString('en')} more`)
  return shown.length < 2 ? shown.join('') : `${shown.slice(0, -1).join(', ')} and ${shown.at(-1)}`
}

/** An instant in facts. */
export function iso(at: Date | null | undefined): string | null {
  return at?.toISOString() ?? null
}
