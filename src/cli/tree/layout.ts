import { ELLIPSIS, fitLine, type Line, type Piece } from './cells.ts'
import { describeJob, describeRest, describeTree } from './describe.ts'
import type { Outline, OutlineJob } from './outline.ts'
import { type Plan, planTree } from './plan.ts'

/** Room for a tree, in character cells. */
export interface Size {
  readonly columns: number
  readonly rows: number
}

/** Lays a tree out in at most `rows` lines of at most `columns` cells: a heading, the root, and what fits below it. */
export function layoutTree(outline: Outline, { columns, rows }: Size): Line[] {
  if (columns <= 0 || rows <= 0) return []
  const lines: Line[] = [describeTree(outline)]
  if (rows > 1) lines.push(...linesOfJob(outline.root, planTree(outline, rows - 2), '', '', columns))
  return lines.map((line) => fitLine(line, columns))
}

/** @param own what stands before the job itself; `below` before each line under it. */
function linesOfJob(job: OutlineJob, plan: Plan, own: string, below: string, columns: number): Line[] {
  const lines: Line[] = [[guide(own, columns), ...describeJob(job)]]
  const rows = plan.get(job.id) ?? []
  for (const [index, row] of rows.entries()) {
    const last = index === rows.length - 1
    const first = below + (last ? '└─ ' : '├─ ')
    if ('job' in row) lines.push(...linesOfJob(row.job, plan, first, below + (last ? '   ' : '│  '), columns))
    else lines.push([guide(first, columns), ...describeRest(row.rest)])
  }
  return lines
}

/** The lines that lead to a job; in a deep tree only their end, so that the job itself is seen. */
function guide(text: string, columns: number): Piece {
  const most = Math.floor(columns / 2)
  return { text: text.length <= most ? text : ELLIPSIS + text.slice(text.length - most + 1), style: 'dim' }
}
