import { setTimeout as sleep } from 'node:timers/promises'
import { statement } from '../db/statement.ts'
import { parseDuration } from '../engine/duration.ts'
import type { Engine } from '../engine/engine.ts'
import { EngineError } from '../engine/errors.ts'
import { formatJobId } from '../engine/ids.ts'
import { JOB_STATES, type JobState } from '../engine/states.ts'

/** How to drain. */
export interface DrainOptions {
  /** Run jobs that are queued for later too, retries that wait for their backoff among them, as if their time had come. */
  skipDelays?: boolean
  /** Longest time it may take, in ms or as text such as `'10s'`; default 30 s. */
  timeout?: number | string
}

/** It was not done in time: something ran on, or new jobs kept coming. */
export class DrainTimeoutError extends EngineError {
  readonly code = 'DRAIN_TIMEOUT'
  /** Some of the jobs that could still run or were running: `JB_…`. */
  readonly jobIds: string[]

  constructor(timeoutMs: number, jobs: readonly BusyJob[]) {
    const named = jobs.map((job) => `${job.type} ${formatJobId(job.id)} ${job.state}`).join(', ')
    super(`Not done after ${timeoutMs} ms: ${named || 'jobs kept coming'}.`)
    this.jobIds = jobs.map((job) => formatJobId(job.id))
  }
}

const POLL_MS = 10
const FIRST_FEW = 5

/**
 * Waits until nothing can run here: no job runs, and none that is queued is due, of a type and a queue that this engine
 * serves, and free to run. What then is left waits for something that drain does not bring: a time, an assignee, a
 * resume, another process.
 *
 * @param queues served; null: all.
 * @returns how many jobs are in each state then.
 * @throws {DrainTimeoutError}
 */
export async function drain(
  engine: Engine,
  queues: readonly string[] | null,
  { skipDelays = false, timeout = 30_000 }: DrainOptions = {},
): Promise<Record<JobState, number>> {
  const db = engine.database
  const served = [engine.jobs.types, queues]
  const timeoutMs = parseDuration(timeout)
  const deadline = performance.now() + timeoutMs
  for (;;) {
    const busy = await db.query(findBusy, served)
    if (busy.length === 0) {
      const hurried = skipDelays ? await db.query(hurry, served) : []
      if (hurried.length === 0) break
      engine.ring()
    }
    if (performance.now() >= deadline) throw new DrainTimeoutError(timeoutMs, busy)
    await sleep(POLL_MS)
  }
  const counts = Object.fromEntries(JOB_STATES.map((state) => [state, 0])) as Record<JobState, number>
  for (const { state, count } of await db.query(countStates)) counts[state] = count
  return counts
}

interface BusyJob {
  id: string
  type: string
  state: JobState
}

const CLAIMABLE = `j.state = 'queued' and j.archived_at is null and j.type = any($1::text[])
    and ($2::text[] is null or j.queue = any($2::text[]))`

// A parent that is to fail does so in a transaction that follows. Wakes come in the one that settles the last child.
const findBusy = statement<BusyJob>(
  'drain.find-busy',
  (t) => `
  select j.id, j.type, j.state from ${t.job} j
  left join ${t.assignee} a on a.id = j.assignee_id
  where j.state = 'running'
    or (${CLAIMABLE} and j.run_at <= now() and (j.assignee_id is null or a.status = 'active'))
    or (j.failing_child_id is not null and j.state in ('queued', 'waiting', 'paused'))
  limit ${FIRST_FEW}`,
)

const hurry = statement<{ id: string }>(
  'drain.hurry',
  (t) => `
  update ${t.job} j set run_at = now()
  where ${CLAIMABLE} and j.run_at > now()
    and (j.assignee_id is null or exists (select from ${t.assignee} a where a.id = j.assignee_id and a.status = 'active'))
  returning j.id`,
)

const countStates = statement<{ state: JobState; count: number }>(
  'drain.count-states',
  (t) => `select state, count(*)::int as count from ${t.job} group by state`,
)
