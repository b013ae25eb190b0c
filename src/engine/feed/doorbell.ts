import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { type BellConnection, openBellConnection } from './bell-connection.ts'
import { channelName } from './channel.ts'
import { coalesce } from './coalesce.ts'

/**
 * Tells all processes of an installation that something was committed, by LISTEN and NOTIFY on one connection of its
 * own. A ring carries no data and may get lost: who is rung reads the database, and reads it now and then anyway.
 */
export interface Doorbell {
  /** Connects; returns when it listens, or knows that for now it does not. Goes on trying for ever. */
  start(): Promise<void>
  /** Call it after a commit. Listeners of this process hear it at once, other processes within 20 ms. */
  ring(): void
  /**
   * Hears rings of all processes, and whenever LISTEN has come into force (rings were lost before). Returns what ends it.
   */
  onRing(listener: () => void): () => void
  /** Rings of other processes arrive, as far as is known. */
  readonly listening: boolean
  /** Times that LISTEN came into force again after the first. */
  readonly reconnects: number
  stop(): Promise<void>
}

/** What a doorbell needs. */
export interface DoorbellOptions {
  /** Straight to PostgreSQL: a pooler in transaction mode swallows rings. */
  connectionString: string
  schema: string
  /** Rings, but does not listen. */
  pollOnly?: boolean
  logger: Logger
  timing?: Partial<DoorbellTiming>
}

/** All in milliseconds. */
export interface DoorbellTiming {
  /** Rings within this time become one for the other processes; default 20. */
  coalesce: number
  /** Pause between heartbeats; default 5,000. */
  heartbeat: number
  /** Longest wait for a connection or an answer; default 4,000. */
  deadline: number
  /** Longest wait for the ring of the self-test; default 2,000. */
  selfTest: number
  /** After a self-test that failed, when to try again; default 60,000. */
  retest: number
  /** Pause before the first reconnect; doubles each time; default 100. */
  backoff: number
  /** Longest pause before a reconnect; default 5,000. */
  backoffCap: number
}

const TIMING: DoorbellTiming = {
  coalesce: 20,
  heartbeat: 5_000,
  deadline: 4_000,
  selfTest: 2_000,
  retest: 60_000,
  backoff: 100,
  backoffCap: 5_000,
}

/** Makes a doorbell; it connects on {@link Doorbell.start}. Before that and after `stop`, only local listeners hear it. */
export function createDoorbell(options: DoorbellOptions): Doorbell {
  const { connectionString, schema, pollOnly = false, logger } = options
  const timing = { ...TIMING, ...options.timing }
  const listeners = new Set<() => void>()
  const stopping = new AbortController()
  let connection: BellConnection | undefined
  let supervision: Promise<void> | undefined
  let listening = false
  let deaf = false
  let reconnects = 0
  /** A ring that has not reached the server, and one on its way there. */
  let owed = false
  let sending: Promise<void> | undefined

  function tellListeners() {
    for (const listener of listeners) {
      try {
        listener()
      } catch (error) {
        logger.error({ err: error }, 'a listener of the doorbell failed')
      }
    }
  }

  /** Sends what is owed, one NOTIFY at a time: a slow server gets fewer, not a queue. */
  function send() {
    owed = true
    if (sending !== undefined || connection === undefined) return
    owed = false
    sending = connection
      .ring()
      .catch(() => {
        owed = true
      })
      .finally(() => {
        sending = undefined
        if (owed) send()
      })
  }

  const outward = coalesce(send, timing.coalesce)

  async function connect(): Promise<BellConnection> {
    const opened = await openBellConnection({
      connectionString,
      channel: channelName(schema),
      listen: !pollOnly,
      heartbeatMs: timing.heartbeat,
      deadlineMs: timing.deadline,
      onRing: tellListeners,
    })
    connection = opened
    opened.lost.then(() => {
      listening = false
      if (connection === opened) connection = undefined
    })
    if (stopping.signal.aborted) opened.close()
    else if (owed) send()
    return opened
  }

  /** Whether rings arrive. Without an answer it counts as no: then what arrives is welcome, and polling goes on. */
  async function selfTest(opened: BellConnection): Promise<boolean> {
    const retry = { retryMs: timing.retest }
    try {
      if (await opened.hears(timing.selfTest)) {
        if (deaf) logger.info('the doorbell hears NOTIFY now')
        deaf = false
        return true
      }
      // Loud once; then each retest says so to those who look for it.
      logger[deaf ? 'debug' : 'error'](
        retry,
        'NOTIFY does not arrive on the LISTEN connection: is a pooler in transaction mode in between? ' +
          'Give the direct address of PostgreSQL (DIRECT_DATABASE_URL). Until then the event log is polled.',
      )
      deaf = true
    } catch (error) {
      if (!stopping.signal.aborted) logger.warn({ err: error, ...retry }, 'the doorbell could not be tested')
    }
    return false
  }

  /** Keeps one connection alive until the doorbell stops. `settled` is called when the first attempt is over. */
  async function supervise(settled: () => void): Promise<void> {
    const { signal } = stopping
    let failures = 0
    let connects = 0
    let outage = false
    while (!signal.aborted) {
      try {
        const opened = await connect()
        // LISTEN works: only now is the next pause a short one again.
        failures = 0
        if (outage) logger.info('the doorbell is connected again')
        outage = false
        if (!pollOnly) {
          if (connects++ > 0) reconnects++
          tellListeners()
          listening = await selfTest(opened)
        }
        settled()
        const reason = await lossOf(opened, listening || pollOnly)
        listening = false
        if (reason !== undefined && !signal.aborted) {
          outage = true
          logger.warn({ err: reason }, 'the doorbell lost its connection; the event log is polled meanwhile')
        }
      } catch (error) {
        if (!outage) logger.warn({ err: error }, 'the doorbell cannot connect; the event log is polled meanwhile')
        outage = true
        settled()
      }
      const pause = Math.min(timing.backoff * 2 ** failures++, timing.backoffCap)
      await sleep(pause * (0.5 + Math.random() / 2), undefined, { signal }).catch(() => {})
    }
  }

  /** Waits for the end of a connection, and says why. One that does not hear is given up when it is time to try again. */
  async function lossOf(opened: BellConnection, hears: boolean): Promise<Error | undefined> {
    if (hears) return opened.lost
    let timer: NodeJS.Timeout | undefined
    const retest = new Promise<undefined>((resolve) => {
      timer = setTimeout(resolve, timing.retest, undefined)
    })
    const reason = await Promise.race([opened.lost, retest])
    clearTimeout(timer)
    opened.close()
    return reason
  }

  return {
    async start() {
      if (supervision !== undefined) return
      await new Promise<void>((resolve) => {
        supervision = supervise(resolve)
      })
    },
    ring() {
      tellListeners()
      if (!stopping.signal.aborted) outward.call()
    },
    onRing(listener) {
      // A wrapper of its own, so that the same function may listen twice.
      const entry = () => listener()
      listeners.add(entry)
      return () => {
        listeners.delete(entry)
      }
    },
    get listening() {
      return listening
    },
    get reconnects() {
      return reconnects
    },
    async stop() {
      if (outward.cancel()) send()
      stopping.abort()
      // The last ring still goes out; a server that is gone fails it within the deadline.
      while (sending !== undefined) await sending
      connection?.close()
      await supervision
    },
  }
}
