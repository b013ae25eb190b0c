import type { Queryable } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import type { FailureCode } from '../job.ts'
import type { JobState, Phase } from '../states.ts'
import { groupBy } from './group-by.ts'

/** One claim of a job, read from its events. */
export interface Attempt {
  number: number
  phase: Phase
  wave: number
  /** Bare UUID. */
  workerId: string
  startedAt: Date
  endedAt: Date | null
  endedIn: JobState | null
  error: string | null
  errorCode: FailureCode | null
  errorStack: string | null
}

interface Row {
  job_id: string
  number: number
  phase: string
  wave: number
  actor: string
  started_at: Date
  ended_at: Date | null
  ended_in: string | null
  error: { message?: string; code?: string; stack?: string | null } | null
}

/** The newest `first` attempts of each of these jobs, newest first; absent where a job was never claimed. */
export async function attemptsOf(
  q: Queryable,
  jobIds: readonly string[],
  first: number,
): Promise<Map<string, Attempt[]>> {
  const rows = await q.query(findAttempts, [jobIds, first])
  const byJob = groupBy(rows, (row) => row.job_id)
  return new Map([...byJob].map(([id, attempts]) => [id, attempts.map(attemptFromRow)]))
}

function attemptFromRow(row: Row): Attempt {
  return {
    number: row.number,
    phase: row.phase as Phase,
    wave: row.wave,
    // Claims are written by workers, whose actor is their global id.
    workerId: row.actor.replace(/^WK_/, ''),
    startedAt: row.started_at,
    endedAt: row.ended_at,
    endedIn: row.ended_in as JobState | null,
    error: row.error?.message ?? null,
    errorCode: (row.error?.code ?? null) as FailureCode | null,
    errorStack: row.error?.stack ?? null,
  }
}

// A claim is the move into RUNNING; its end is the next move out of it, or the deletion of the job.
const findAttempts = statement<Row>(
  'reads.attempts',
  (t) => `
  select claim.job_id, claim.attempt as number, claim.phase, claim.wave, claim.actor, claim.at as started_at,
    ended.at as ended_at, ended."to" as ended_in, ended.detail -> 'error' as error
  from unnest($1::uuid[]) with ordinality job(id, number)
  cross join lateral (
    select * from ${t.jobEvent} e where e.job_id = job.id and e.kind = 'moved' and e."to" = 'running'
    order by e.version desc limit $2) claim
  left join lateral (
    select * from ${t.jobEvent} e where e.job_id = job.id and e.version > claim.version
      and e.kind in ('moved', 'deleted') and e."from" = 'running'
    order by e.version limit 1) ended on true
  order by job.number, claim.version desc`,
)
