import { later } from '../../db/instants.ts'
import type { AnyDefinition } from '../definition/define-job.ts'
import { formatId } from '../ids.ts'
import type { Json, Timeouts } from '../job.ts'
import { heartbeatLives } from '../reads/workers.ts'
import type { Phase } from '../states.ts'
import { attemptLimit, DEFAULT_ATTEMPT_LIMIT_MS } from '../worker/attempt-limit.ts'
import { type Reason, reasonOf } from './explanation.ts'
import { msSince, type Situation } from './situation.ts'
import type { Subject } from './subjects.ts'
import { ageText, iso } from './words.ts'

/** A time limit, and who set it. */
interface Limit {
  /** Null: none. */
  ms: number | null
  from: 'job' | 'type' | 'default'
}

/** It runs: for how long, where, and what will end it. */
export function running({ job, definition }: Situation): Reason {
  const claimedAt = job.claimed_at ?? job.updated_at
  const runningMs = msSince(job, claimedAt)!
  const heartbeatAgeMs = msSince(job, job.heartbeat_at)
  const lost = job.worker_dead || heartbeatAgeMs === null || !heartbeatLives(heartbeatAgeMs, job.beat_interval!)
  const limit = limitOf(job, definition)
  const endsAt = limit.ms === null ? null : later(claimedAt, limit.ms)
  const clause = `has been running for ${ageText(runningMs)}${placeText(job, lost)}`
  const beat = heartbeatAgeMs === null || lost ? '' : ` Its worker's heartbeat is ${ageText(heartbeatAgeMs)} old.`
  const pause = job.pause_requested ? ' It is paused when this attempt ends in a retry or a wait.' : ''
  const aside = job.archived_at === null ? '' : ' It is archived.'
  return reasonOf({
    reason: 'running',
    clause,
    more: `This is attempt ${job.attempt}, in ${job.phase}.${beat} ${limitText(job, limit, endsAt)}${pause}${aside}`,
    facts: {
      attempt: job.attempt,
      phase: job.phase,
      worker: job.worker_id && formatId('WK', job.worker_id),
      host: job.host,
      pid: job.pid,
      workerLost: lost,
      claimedAt: iso(claimedAt),
      runningMs,
      heartbeatAt: iso(job.heartbeat_at),
      heartbeatAgeMs,
      limitMs: limit.ms,
      limitFrom: limit.from,
      endsAt: iso(endsAt),
      pauseRequested: job.pause_requested,
      progress: job.progress as Json,
      archived: job.archived_at !== null,
    },
    next: nextOf(job, lost, limit),
    nextAt: lost ? null : endsAt,
  })
}

function placeText(job: Subject, lost: boolean): string {
  const worker = job.worker_id === null ? 'no worker' : `worker ${formatId('WK', job.worker_id)}`
  if (job.host === null) return ` under ${worker}, which is gone`
  return ` on ${job.host} (${worker}, pid ${job.pid}${lost ? '; it is gone' : ''})`
}

function limitOf(job: Subject, definition: AnyDefinition | undefined): Limit {
  const phase = job.phase as Phase
  const own = (job.timeouts as Timeouts)[phase]
  if (typeof own === 'number') return { ms: own, from: 'job' }
  if (!definition) return { ms: DEFAULT_ATTEMPT_LIMIT_MS, from: 'default' }
  const from = definition.settings.timeouts?.[phase] === undefined ? 'default' : 'type'
  return { ms: attemptLimit({ phase, timeouts: {} }, definition), from }
}

const LIMITS = { job: 'Its own limit', type: "Its type's limit", default: 'The default limit' }

function limitText(job: Subject, { ms, from }: Limit, endsAt: Date | null): string {
  if (ms === null || endsAt === null) return 'No limit ends it.'
  const left = endsAt.getTime() - job.now.getTime()
  const when = left >= 0 ? `ends it in ${ageText(left)}` : `has passed ${ageText(-left)} ago`
  return `${LIMITS[from]} of ${ageText(ms)} ${when}.`
}

function nextOf(job: Subject, lost: boolean, limit: Limit): string | null {
  const then =
    job.retry_count < job.max_retries
      ? 'the job goes back into the queue with a retry spent'
      : 'the job fails, for it has no retries left'
  if (lost) return `The next lease recovery ends the attempt: ${then}.`
  return limit.ms === null ? null : `If its handler has not ended by then, the attempt does, and ${then}.`
}
