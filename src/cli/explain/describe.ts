import type { Explanation } from '../../engine/explain/explanation.ts'
import { instantText } from '../../engine/explain/words.ts'
import { formatJobId } from '../../engine/ids.ts'
import type { Job } from '../../engine/job.ts'
import { printable } from '../tree/cells.ts'
import { wrap } from './wrap.ts'

/** A job and why it does not move. */
export interface Explained {
  job: Job
  explanations: readonly Explanation[]
}

/** Lines for a person: the job, then each reason, wrapped to a width in cells. */
export function describeExplained({ job, explanations }: Explained, columns: number): string[] {
  const name = printable(`${formatJobId(job.id)} ${job.type}${job.key === null ? '' : ` ${job.key}`}`)
  return [`${name} ${job.state}`, ...explanations.flatMap((explanation) => describeReason(explanation, columns))]
}

function describeReason({ reason, sentence, next, nextAt }: Explanation, columns: number): string[] {
  const when = nextAt === null ? '' : ` (${instantText(nextAt)})`
  return [
    ...wrap(printable(`${reason.toUpperCase()}: ${sentence}`), { columns, first: '  ', below: '    ' }),
    ...(next === null ? [] : wrap(printable(`Next: ${next}${when}`), { columns, first: '    ', below: '      ' })),
  ]
}
