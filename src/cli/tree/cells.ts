import stringWidth from 'string-width'

/** How a piece of text is to look; what that is in a terminal is the painter's business. */
export type Style = 'plain' | 'dim' | 'strong' | 'good' | 'bad' | 'busy' | 'calm'

/** A piece of a line. */
export interface Piece {
  readonly text: string
  readonly style: Style
}

/** One line of the screen. */
export type Line = readonly Piece[]

export const ELLIPSIS = '…'

const graphemes = new Intl.Segmenter(undefined, { granularity: 'grapheme' })

/** Columns of the terminal that a text takes: an ideogram takes two, a combining mark none. */
export function cellsOf(text: string): number {
  return stringWidth(text)
}

/** A line that takes at most `columns`; what had to go shows as an ellipsis. */
export function fitLine(line: Line, columns: number): Line {
  if (columns <= 0) return []
  if (cellsOf(textOf(line)) <= columns) return line
  const fitted: Piece[] = []
  let room = columns - cellsOf(ELLIPSIS)
  for (const piece of line) {
    let text = ''
    for (const { segment } of graphemes.segment(piece.text)) {
      const cells = cellsOf(segment)
      if (cells > room) return [...fitted, { text: text + ELLIPSIS, style: piece.style }]
      text += segment
      room -= cells
    }
    fitted.push({ text, style: piece.style })
  }
  return fitted
}

/** A line's text without its looks. */
export function textOf(line: Line): string {
  return line.map((piece) => piece.text).join('')
}

// Control characters, halves of surrogate pairs, separators of lines, and what turns the direction of writing.
const UNPRINTABLE = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Bidi_Control}\ufeff]/gu

const SHORT: Record<string, string> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }

/** Text from outside as it may be written to a terminal: what would steer it is written as an escape. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (character) => {
    return SHORT[character] ?? `\\u{${character.codePointAt(0)!.toString(16)}}`
  })
}
