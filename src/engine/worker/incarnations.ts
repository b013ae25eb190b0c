import { randomUUID } from 'node:crypto'
import os from 'node:os'
import type { Logger } from 'pino'
import { type Heartbeat, startHeartbeat } from '../lease/heartbeat.ts'
import type { WorkerIdentity } from '../lease/identity.ts'
import type { BeatReport } from '../lease/messages.ts'

/** Who is told what. */
export interface IncarnationListener {
  /** A new incarnation is registered and alive; null: the last one is over, there will be another. */
  incarnated(workerId: string | null): void
  beat(report: BeatReport): void
  /** No new incarnation is to be had. */
  fatal(error: unknown): void
}

/** What every incarnation of a worker has in common. */
export interface IncarnationOptions {
  connectionString: string
  schema: string
  worker: Pick<WorkerIdentity, 'queues' | 'types' | 'concurrency' | 'intervalMs' | 'schemaVersion'>
  logger: Logger
}

/**
 * Keeps a worker registered and beating. Declared dead (after a freeze, say), it takes a new identity: what the old one
 * held is others' by then.
 */
export class Incarnations {
  readonly #options: IncarnationOptions
  readonly #on: IncarnationListener
  readonly #stop = new AbortController()
  #workerId: string | null = null
  #heartbeat: Heartbeat | null = null
  #failing = false

  constructor(options: IncarnationOptions, on: IncarnationListener) {
    this.#options = options
    this.#on = on
  }

  /** Registers the first one. While the database is away, it is waited for. */
  async start(): Promise<void> {
    const { connectionString, schema, worker, logger } = this.#options
    const id = randomUUID()
    this.#workerId = id
    const heartbeat = await startHeartbeat(
      {
        connectionString,
        schema,
        worker: { ...worker, id, host: os.hostname(), pid: process.pid },
        signal: this.#stop.signal,
      },
      {
        beat: (report) => {
          if (this.#failing) logger.info('The heartbeat is back')
          this.#failing = false
          if (this.#workerId === id) this.#on.beat(report)
        },
        lost: () => this.renew(id),
        failing: (error) => {
          if (!this.#failing) logger.warn({ err: error }, 'The heartbeat fails: it tries on')
          this.#failing = true
        },
      },
    )
    if (this.#workerId !== id) return heartbeat.stop({ removeRow: true })
    this.#heartbeat = heartbeat
    logger.info(`Worker WK_${id} is up`)
    this.#on.incarnated(id)
  }

  /** This incarnation was refused: takes another. */
  renew(workerId: string): void {
    if (this.#workerId !== workerId || this.#stop.signal.aborted) return
    this.#options.logger.error(`Worker WK_${workerId} was declared dead: it takes a new identity`)
    const old = this.#heartbeat
    this.#workerId = null
    this.#heartbeat = null
    this.#on.incarnated(null)
    void old?.stop({ removeRow: false })
    this.start().catch((error) => {
      if (!this.#stop.signal.aborted) this.#on.fatal(error)
    })
  }

  /** Says that no more jobs are claimed. */
  async setStopping(): Promise<void> {
    await this.#heartbeat?.setStopping()
  }

  /** Ends the heartbeat. Jobs still held go back at once. */
  async stop(): Promise<void> {
    this.#stop.abort()
    this.#workerId = null
    await this.#heartbeat?.stop({ removeRow: true })
  }
}
