/** The lines that two texts do not share, in order: `- ` before, `+ ` after. Good enough to see what changed. */
export function lineDifference(before: string, after: string): string {
  const left = before.split('\n')
  const right = after.split('\n')
  const width = right.length + 1
  // Longest common subsequence, row by row from the end.
  const table = new Uint32Array((left.length + 1) * width)
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      table[i * width + j] =
        left[i] === right[j]
          ? table[(i + 1) * width + j + 1]! + 1
          : Math.max(table[(i + 1) * width + j]!, table[i * width + j + 1]!)
    }
  }
  const lines: string[] = []
  let i = 0
  let j = 0
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      i++
      j++
    } else if (j >= right.length || (i < left.length && table[(i + 1) * width + j]! >= table[i * width + j + 1]!)) {
      lines.push(`- ${left[i++]}`)
    } else {
      lines.push(`+ ${right[j++]}`)
    }
  }
  return lines.join('\n')
}
