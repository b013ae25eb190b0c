const PATTERN = '^[0-9]{1,9}%?$'
const FORM = new RegExp(PATTERN)

/** A failure tolerance as it is stored: `3` or `10%`. Null for any other text, which plain SQL may have left. */
export function toleranceOf(text: string | null): string | null {
  return text !== null && FORM.test(text) ? text : null
}

/** How many failures, or which share of them, a stored failure tolerance bears, as SQL; null (no limit) for other text. */
export function bearsSql(column: string): string {
  return `case when ${column} ~ '${PATTERN}' then rtrim(${column}, '%')::bigint end`
}
