import { Ansis } from 'ansis'
import { type Line, type Style, textOf } from './cells.ts'

/** Turns lines into text for a terminal. */
export type Paint = (lines: readonly Line[]) => string

/**
 * Paints in colours where the stream takes them (a terminal, or FORCE_COLOR, and not NO_COLOR), else plainly.
 *
 * @param colours false: never.
 */
export function createPaint(colours: boolean): Paint {
  const ansis = new Ansis(colours ? undefined : 0)
  const styles: Record<Style, (text: string) => string> = {
    plain: (text) => text,
    dim: ansis.dim,
    strong: ansis.bold,
    good: ansis.green,
    bad: ansis.red,
    busy: ansis.cyan,
    calm: ansis.blue,
  }
  const paintLine = (line: Line) => line.map((piece) => styles[piece.style](piece.text)).join('')
  return (lines) => lines.map((line) => (colours ? paintLine(line) : textOf(line))).join('\n')
}
