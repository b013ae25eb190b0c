import { Stoppable } from '../engine/watch/stoppable.ts'
import type { BackoffOptions } from './backoff.ts'
import { EVENT_FIELDS, eventsDocument, JOB_FIELDS, jobDocument, treeDocument } from './documents.ts'
import { type ResumeOptions, resume } from './resume.ts'
import { createSeenEvents } from './seen-events.ts'
import type { Operation, Transport } from './transport.ts'
import type { EndReason, EventFrame, JobEventFilter, JobState, TreeUpdate, WatchedEvent, WatchedJob } from './types.ts'

/** What a client is made of. */
export interface ClientOptions {
  /** `sse({ url })` or `webSocket({ url })`. */
  transport: Transport
  backoff?: BackoffOptions | undefined
  /** Told when a subscription broke off, with what, and when it is tried again, in milliseconds. */
  onRetry?: ((reason: Error, delayMs: number) => void) | undefined
}

/** How something is watched. */
export interface WatchOptions {
  /** Fields to ask for in place of the usual ones, as a GraphQL selection: `'type state payload'`. */
  fields?: string | undefined
  /** Ends it, as leaving the loop does. */
  signal?: AbortSignal | undefined
}

/** How a stream that has cursors is watched. */
export interface ResumableOptions extends WatchOptions {
  /** Cursor to go on from, kept from an earlier run. */
  after?: string | undefined
}

/** A subscription: leave the loop, or call `return()`, to end it. */
export type Watched<T> = AsyncIterableIterator<T, undefined>

/**
 * Watches jobs. Each subscription comes back by itself when its connection breaks or the server restarts, and goes on
 * from the last cursor, so that nothing is lost and nothing comes twice.
 */
export interface Client {
  /**
   * The tree that a job belongs to: as it is, then what changes. When its cursor has expired a new snapshot begins, with
   * `reset`. Apply the updates to a {@link createTreeState}.
   *
   * @throws {RequestError} from the loop: there is no such job, or the fields make no sense
   */
  watchTree<J = WatchedJob>(id: string, options?: ResumableOptions): Watched<TreeUpdate<J & JobKey>>
  /** Every event that matches, once, in order per job; and gaps, should there be any. */
  watchEvents<E = WatchedEvent>(
    options?: ResumableOptions & { filter?: JobEventFilter | undefined },
  ): Watched<EventFrame<E & EventKey>>
  /** A job as it is, then after changes, until it has ended (or, with `keepOpen`, was deleted); null if it is gone. */
  watchJob<J = WatchedJob>(
    id: string,
    options?: WatchOptions & { keepOpen?: boolean | undefined },
  ): Watched<(J & JobKey & { state: JobState }) | null>
  /**
   * Any subscription. Gives the `data` of each frame. Goes on from the last cursor if its one field has a `cursor` and the
   * document a variable `$after` that it hands on; asks for `ended` too. Otherwise it begins anew when it breaks off, and
   * is over when the server completes it.
   */
  subscribe<D = Record<string, unknown>>(
    operation: { query: string; variables?: Record<string, unknown> | undefined; operationName?: string | undefined },
    options?: Pick<WatchOptions, 'signal'>,
  ): Watched<D>
}

/** Fields that are always there. */
export interface JobKey {
  id: string
  version: number
}

/** Fields that are always there. */
export interface EventKey {
  id: string
  jobId: string
}

interface TreeFrame<J> {
  jobTree: TreeUpdate<J> & { ended: EndReason | null }
}

interface EventsFrame<E> {
  jobEvents: { events: E[]; cursor: string; caughtUp: boolean; ended: EndReason | null }
}

interface JobFrame<J> {
  job: J | null
}

const TERMINAL: readonly string[] = ['COMPLETED', 'FAILED', 'CANCELLED']

/**
 * Makes a client. It connects when something is watched.
 *
 * @example
 * const client = createClient({ transport: sse({ url: 'http://127.0.0.1:4000/graphql' }) })
 * for await (const job of client.watchJob(id)) console.log(job?.state)
 */
export function createClient(options: ClientOptions): Client {
  const { transport, backoff = {}, onRetry } = options

  /** Frames made into what the caller gets; undefined is for nobody. */
  function watch<D, T>(
    operation: Operation,
    signal: AbortSignal | undefined,
    take: (data: D) => T | undefined,
    isOver: ResumeOptions['isOver'],
  ): Watched<T> {
    async function* frames(stop: AbortSignal) {
      for await (const data of resume(operation, { transport, backoff, onRetry, isOver }, stop)) {
        const taken = take(data as D)
        if (taken !== undefined) yield taken
      }
    }
    return new Stoppable(frames, signal)
  }

  return {
    watchTree<J>(id: string, { fields = JOB_FIELDS, after, signal }: ResumableOptions = {}) {
      const operation = { query: treeDocument(fields), variables: { id, after } }
      return watch<TreeFrame<J & JobKey>, TreeUpdate<J & JobKey>>(
        operation,
        signal,
        ({ jobTree: { ended, ...update } }) => {
          const nothing = update.jobs.length === 0 && update.removed.length === 0 && !update.reset
          return ended !== null && nothing ? undefined : update
        },
        never,
      )
    },

    watchEvents<E>(given: ResumableOptions & { filter?: JobEventFilter | undefined } = {}) {
      const { fields = EVENT_FIELDS, filter, after, signal } = given
      const operation = { query: eventsDocument(fields), variables: { filter, after } }
      const seen = createSeenEvents()
      return watch<EventsFrame<E & EventKey>, EventFrame<E & EventKey>>(
        operation,
        signal,
        ({ jobEvents: { events, cursor, caughtUp, ended } }) => {
          if (ended === 'CURSOR_EXPIRED') return { type: 'gap', cursor }
          if (ended !== null && events.length === 0) return undefined
          return { type: 'events', events: events.filter((event) => !seen(event)), cursor, caughtUp }
        },
        never,
      )
    },

    watchJob<J>(id: string, given: WatchOptions & { keepOpen?: boolean | undefined } = {}) {
      type Found = J & JobKey & { state: JobState }
      const { fields = JOB_FIELDS, keepOpen = false, signal } = given
      const operation = { query: jobDocument(fields), variables: { id, keepOpen } }
      let version = -1
      return watch<JobFrame<Found>, Found | null>(
        operation,
        signal,
        ({ job }) => {
          // The first frame after a reconnect shows what is known, unless something has happened meanwhile.
          if (job !== null && job.version <= version) return undefined
          version = job?.version ?? version
          return job
        },
        (data) => {
          const job = (data as JobFrame<Found> | undefined)?.job
          return job === null || (job !== undefined && !keepOpen && TERMINAL.includes(job.state))
        },
      )
    },

    subscribe<D>(
      { query, variables = {}, operationName }: Parameters<Client['subscribe']>[0],
      { signal }: Pick<WatchOptions, 'signal'> = {},
    ) {
      return watch<D, D>(
        { query, variables, operationName },
        signal,
        (data) => data,
        (_data, resumable) => !resumable,
      )
    },
  }
}

/** Streams that have cursors do not end by themselves. */
const never = () => false
