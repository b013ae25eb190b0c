import { cellsOf } from '../tree/cells.ts'

/** Words in lines of at most `columns` cells, as far as a word fits: the first line behind `first`, others behind `below`. */
export function wrap(
  text: string,
  { columns, first, below }: { columns: number; first: string; below: string },
): string[] {
  const lines: string[] = []
  let line = first
  let empty = true
  for (const word of text.split(' ')) {
    const longer = empty ? line + word : `${line} ${word}`
    if (!empty && cellsOf(longer) > columns) {
      lines.push(line)
      line = below + word
    } else line = longer
    empty = false
  }
  return [...lines, line]
}
