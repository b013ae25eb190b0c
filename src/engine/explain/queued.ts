import { formatId, formatJobId } from '../ids.ts'
import type { Worker } from '../reads/workers.ts'
import { type Reason, reasonOf } from './explanation.ts'
import { msSince, type Situation } from './situation.ts'
import { ageText, countText, instantText, iso, listText } from './words.ts'
import { serving } from './workers.ts'

/** Workers that facts name. */
const MAX_WORKERS = 10

/** Its time has not come. */
export function scheduled({ job }: Situation): Reason | undefined {
  const inMs = job.run_at.getTime() - job.now.getTime()
  if (inMs <= 0) return undefined
  const detail = job.queued_detail
  const why = detail?.retryDelayMs !== undefined ? 'retry' : detail?.delayMs !== undefined ? 'snooze' : 'delay'
  const after = job.error === null ? '' : `, after ${job.error_code ?? 'an error'}: ${job.error}`
  const clauses = {
    retry: `waits out a backoff: retry ${job.retry_count} of ${job.max_retries} in ${ageText(inMs)}${after}`,
    snooze: `has snoozed, and goes on in ${ageText(inMs)}`,
    delay: `is not to run before ${instantText(job.run_at)}, in ${ageText(inMs)}`,
  }
  return reasonOf({
    reason: 'scheduled',
    clause: clauses[why],
    facts: {
      runAt: iso(job.run_at),
      inMs,
      why,
      retry: why === 'retry' ? job.retry_count : null,
      maxRetries: job.max_retries,
      error: why === 'retry' ? job.error : null,
    },
    next: 'From then on it may be claimed.',
    nextAt: job.run_at,
  })
}

/** Nobody who lives would claim it. */
export function noWorker({ job, workers }: Situation): Reason | undefined {
  if (serving(workers, job).length > 0) return undefined
  const knowing = workers.filter((worker) => worker.types.includes(job.type))
  const going = knowing.filter((worker) => !worker.stopping)
  const [why, clause] =
    workers.length === 0
      ? (['none_lives', 'waits for a worker: none lives'] as const)
      : knowing.length === 0
        ? (['type_unknown', `waits for a worker: none that lives knows its type ${job.type}`] as const)
        : going.length === 0
          ? (['all_stopping', `waits for a worker: those that know its type ${job.type} are stopping`] as const)
          : ([
              'queue_not_served',
              `waits for a worker: none that knows its type serves its queue ${job.queue}`,
            ] as const)
  return reasonOf({
    reason: 'no_worker',
    clause,
    facts: {
      type: job.type,
      queue: job.queue,
      why,
      live: workers.length,
      workers: workers.slice(0, MAX_WORKERS).map((worker) => ({
        worker: formatId('WK', worker.id),
        host: worker.host,
        types: worker.types,
        queues: worker.queues,
        stopping: worker.stopping,
      })),
    },
    next: null,
    ...(workers.length > 0 && { more: `Live: ${listText(workers.map(workerText), 4)}.` }),
  })
}

function workerText(worker: Worker): string {
  const types = worker.types.length === 0 ? 'no types' : listText(worker.types)
  const queues = worker.queues.length === 0 ? '' : `, from ${listText(worker.queues)}`
  return `${formatId('WK', worker.id)} on ${worker.host} (${types}${queues}${worker.stopping ? '; stopping' : ''})`
}

/** All slots of its type or key are taken. That is known where the type is. */
export function concurrencyLimit({ job, definition, slots }: Situation): Reason | undefined {
  const limit = definition?.settings.concurrency?.limit
  if (limit === undefined || slots === undefined || slots.running < limit) return undefined
  const all = `${limit === 1 ? 'the one slot' : `all ${limit.toLocaleString('en')} slots`} of type ${job.type}`
  const under = job.concurrency_key === '' ? '' : ` under the key ${job.concurrency_key}`
  const holders = slots.holders.map(({ id, workerId, host, claimedAt }) => ({
    job: formatJobId(id),
    worker: workerId && formatId('WK', workerId),
    host,
    claimedAt: iso(claimedAt),
    runningMs: msSince(job, claimedAt)!,
  }))
  const longest = holders[0]!
  const on = longest.host === null ? '' : ` on ${longest.host}`
  const others = slots.running > 1 ? `, and ${countText(slots.running - 1, 'other')}` : ''
  return reasonOf({
    reason: 'concurrency_limit',
    clause:
      `waits for a slot: ${all}${under} ${limit === 1 ? 'is' : 'are'} taken by ${longest.job}, ` +
      `for ${ageText(longest.runningMs)}${on}${others}`,
    facts: { type: job.type, key: job.concurrency_key, limit, running: slots.running, holders },
    jobs: slots.holders.map(({ id }) => id),
    count: slots.running,
    next: 'When one of them ends, the best of those that wait is claimed.',
  })
}

/** Nothing keeps it but others that come first. */
export function inLine({ job, definition, workers, slots, place }: Situation): Reason {
  const able = serving(workers, job)
  const total = able.reduce((sum, worker) => sum + worker.concurrency, 0)
  const busy = able.reduce((sum, worker) => sum + worker.running, 0)
  return reasonOf({
    reason: 'in_line',
    clause: place === undefined ? 'is in line' : `may be claimed at any moment: ${placeText(place)}`,
    more: `${countText(able.length, 'worker serves', 'workers serve')} it, with ${busy} of ${countText(total, 'slot')} taken.${keyText()}`,
    facts: {
      type: job.type,
      queue: job.queue,
      priority: job.priority,
      before: place?.before ?? null,
      beforeAtLeast: place?.atLeast ?? null,
      workers: able.length,
      slots: total,
      busy,
      concurrencyKey: job.concurrency_key,
      runningOfKey: job.concurrency_key === null ? null : (slots?.running ?? 0),
    },
    next: 'A worker claims it as soon as it has a slot free and those before it are claimed.',
  })

  function keyText(): string {
    if (job.concurrency_key === null) {
      const limited = definition?.settings.concurrency !== undefined
      return limited ? ' It has no concurrency key yet: a worker that knows its type gives it one first.' : ''
    }
    if (definition) return ''
    const running = slots === undefined ? 'None runs' : `${slots.running} ${slots.running === 1 ? 'runs' : 'run'}`
    return ` ${running} under its concurrency key; what limit there is, only processes know that define its type.`
  }
}

function placeText({ before, atLeast }: NonNullable<Situation['place']>): string {
  if (before === 0) return atLeast ? 'those before it are not due yet' : 'it is the first of its type in its queue'
  const many = `${atLeast ? 'at least' : 'about'} ${before.toLocaleString('en')}`
  return `${many} of its type ${before === 1 ? 'is' : 'are'} before it in its queue`
}
