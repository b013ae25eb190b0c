import type { InputIssue } from './errors.ts'

/** Largest JSON text of a payload, result, metadata or checkpoint, in bytes. */
export const MAX_JSON_BYTES = 1024 * 1024

// JSON.stringify writes NUL and lone surrogates as escapes. An even number of backslashes before one is escaped text.
const NUL_ESCAPE = /(?<!\\)(?:\\\\)*\\u0000/
const SURROGATE_ESCAPE = /(?<!\\)(?:\\\\)*\\ud[89a-f][0-9a-f]{2}/

/**
 * The JSON text of a value, checked for what PostgreSQL's jsonb cannot hold: NUL characters, lone surrogates, more than
 * 1 MiB, values without a JSON form (undefined, functions, BigInt, cycles).
 */
export function toJsonText(value: unknown, path: string[] = []): { text: string } | { issue: InputIssue } {
  let text: string | undefined
  try {
    text = JSON.stringify(value)
  } catch (error) {
    return { issue: { path, message: `has no JSON form: ${error instanceof Error ? error.message : String(error)}` } }
  }
  if (text === undefined) return { issue: { path, message: `has no JSON form: ${typeof value}` } }
  // JSON has no such numbers, and JSON.stringify writes null for them.
  if (text.includes('null') && hasInfinity(value)) {
    return { issue: { path, message: 'contains a number that JSON cannot hold: infinite, or not a number' } }
  }
  const bytes = Buffer.byteLength(text)
  if (bytes > MAX_JSON_BYTES) {
    return { issue: { path, message: `is ${bytes} bytes of JSON; at most ${MAX_JSON_BYTES} are taken` } }
  }
  if (NUL_ESCAPE.test(text))
    return { issue: { path, message: 'contains a NUL character, which PostgreSQL cannot store' } }
  if (SURROGATE_ESCAPE.test(text))
    return { issue: { path, message: 'contains half of a surrogate pair, which is no character' } }
  return { text }
}

function hasInfinity(value: unknown): boolean {
  let found = false
  JSON.stringify(value, (_, part) => {
    if (typeof part === 'number' && !Number.isFinite(part)) found = true
    return part
  })
  return found
}
