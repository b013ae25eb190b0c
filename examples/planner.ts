import { PermanentError } from '../src/index.ts'

/** What the planner wants done about a question: it answers, asks a tool, or asks smaller questions. */
export type Plan =
  | { kind: 'answer'; answer: string }
  | { kind: 'tool'; tool: 'words' | 'letters' | 'longest'; text: string }
  | { kind: 'split'; combine: '+' | '-' | '*' | '/' | ';'; questions: string[] }

const TOOL = /^(?:how many )?(words|letters|longest) (?:word )?in "([^"]*)"$/i

/**
 * Stands in for a language model: takes a question one step apart, by rules rather than by a network. It knows numbers,
 * `+ - * /` with brackets, several questions separated by `;`, and `words in "…"`, `letters in "…"`, `longest in "…"`.
 *
 * @throws {PermanentError} VALIDATION when it does not understand.
 */
export function plan(question: string): Plan {
  const text = question
    .trim()
    .replace(/^what is /i, '')
    .replace(/\?$/, '')
    .trim()
  if (/^-?\d+(\.\d+)?$/.test(text)) return { kind: 'answer', answer: text }
  const [, tool, input] = TOOL.exec(text) ?? []
  if (tool !== undefined) return { kind: 'tool', tool: tool.toLowerCase() as 'words', text: input! }
  // The operator that binds least is done last, so it is taken apart first; of several such, the last one.
  for (const operators of [';', '+-', '*/']) {
    const at = lastOutside(text, operators)
    if (at < 0) continue
    const questions = [text.slice(0, at), text.slice(at + 1)]
    return { kind: 'split', combine: text[at] as '+', questions }
  }
  if (text.startsWith('(') && text.endsWith(')')) return plan(text.slice(1, -1))
  throw new PermanentError(`I do not understand: ${text}`, { code: 'VALIDATION' })
}

/** Where the last of these operators stands between two operands, outside of brackets and quotes; -1 if nowhere. */
function lastOutside(text: string, operators: string): number {
  let depth = 0
  let quoted = false
  let found = -1
  for (let at = 0; at < text.length; at++) {
    const char = text[at]!
    if (char === '"') quoted = !quoted
    else if (quoted) continue
    else if (char === '(') depth++
    else if (char === ')') depth--
    // After another operator, or in front, it is a sign.
    else if (depth === 0 && operators.includes(char) && /[^-+*/;(\s]\s*$/.test(text.slice(0, at))) found = at
  }
  return found
}
