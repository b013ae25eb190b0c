import { setTimeout as sleep } from 'node:timers/promises'
import type { GraphQLResolveInfo } from 'graphql'
import type { FeedBatch } from '../engine/feed/batch.ts'
import type { JobEventFilter } from '../engine/feed/filter.ts'
import type { Job } from '../engine/job.ts'
import { jobsById } from '../engine/reads/jobs-by-id.ts'
import { isTerminal } from '../engine/states.ts'
import { patiently } from '../engine/watch/patiently.ts'
import { type Context, loadersOf } from './context.ts'
import { eventFilter } from './event-filter.ts'
import { jobIdArg } from './global-ids.ts'
import { presentCursor } from './present-cursor.ts'
import { CLOSING, Stream } from './stream.ts'

/** Every event that matches, from a cursor or from now on. */
export function watchEvents(
  _root: unknown,
  args: { filter?: JobEventFilter | null | undefined; after?: string | null | undefined },
  context: Context,
): Stream<FeedBatch> {
  const filter = eventFilter(args.filter)
  return new Stream(context, (stop) => {
    // Here rather than in the generator, so that a cursor that makes no sense is refused before anything is streamed.
    const batches = context.engine.feed.subscribe({ filter, after: args.after, signal: stop })
    return eventFrames(context, batches, args.after ?? undefined, stop)
  })
}

async function* eventFrames(
  context: Context,
  batches: AsyncIterable<FeedBatch>,
  after: string | undefined,
  stop: AbortSignal,
): AsyncGenerator<FeedBatch> {
  let cursor = after
  for await (const batch of batches) {
    cursor = batch.cursor
    yield batch.ended === 'cursor_expired' ? { ...batch, cursor: await presentCursor(context) } : batch
    if (batch.ended) return
  }
  if (stop.reason === CLOSING) {
    yield { events: [], cursor: cursor ?? (await presentCursor(context)), caughtUp: false, ended: 'shutdown' }
  }
}

/** Shortest time between two frames of one job, in milliseconds. */
const COALESCE_MS = 250

/** A job as it is, then after each change, until it is terminal (or, with `keepOpen`, deleted). */
export function watchJob(
  _root: unknown,
  args: { id: string; keepOpen: boolean },
  context: Context,
  info: GraphQLResolveInfo,
): Stream<Job | null> {
  const id = jobIdArg(args.id)
  return new Stream(context, (stop) => jobStates(context, info, id, args.keepOpen, stop))
}

async function* jobStates(
  context: Context,
  info: GraphQLResolveInfo,
  id: string,
  keepOpen: boolean,
  stop: AbortSignal,
): AsyncGenerator<Job | null> {
  const { engine } = context
  const { heavy } = loadersOf(context, info)
  let version = 0
  let sentAt = Number.NEGATIVE_INFINITY
  // A feed that ended because this reader was slow is begun anew: only the present state counts here.
  while (!stop.aborted) {
    // Registered with the first batch: what happens after the read below comes in a later one.
    for await (const batch of engine.feed.subscribe({ filter: { jobIds: [id] }, signal: stop })) {
      if (batch.ended === 'shutdown') return
      if (batch.events.length > 0 && !(await pause(sentAt + COALESCE_MS - performance.now(), stop))) return
      const [job] = await patiently(() => jobsById(engine.database, [id], heavy), stop)
      if (job?.version === version) continue
      version = job?.version ?? version
      sentAt = performance.now()
      yield job ?? null
      if (!job || (isTerminal(job.state) && !keepOpen)) return
    }
  }
}

/** False: stopped meanwhile. */
async function pause(ms: number, stop: AbortSignal): Promise<boolean> {
  if (ms <= 0) return !stop.aborted
  return sleep(ms, true, { signal: stop }).catch(() => false)
}
