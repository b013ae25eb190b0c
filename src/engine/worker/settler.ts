import type { SettleReport } from '../settle/settle.ts'
import type { SettleItem } from '../settle/settle-batch.ts'
import { isSmallFanOut } from '../settle/settle-fan-outs.ts'

/**
 * What became of one ended attempt: written; not, because it no longer held its job; written as failed, because of what it
 * brought; or not at all, because PostgreSQL refuses any end of it: it holds its job still.
 */
export type SettleFate = 'settled' | 'stale' | 'refused' | 'unsettled'

/** Most attempts settled at once. */
const MAX_BATCH = 1000

/** How many batches may be under way; the next ones gather meanwhile. */
const IN_FLIGHT = { moves: 2, smallFanOuts: 2, fanOuts: 3 }

/** Most small fan-outs of one transaction: some thousands of rows. */
const MAX_FAN_OUTS = 50

/** Settles ended attempts in batches: at once while few come, in the largest batches there are while many do. */
export class Settler {
  readonly #settle: (items: readonly SettleItem[]) => Promise<SettleReport>
  readonly #moves: Lane
  readonly #smallFanOuts: Lane
  /** Each a transaction of its own, maybe a long one: nobody else's settling waits for it. */
  readonly #fanOuts: Lane

  /** @param settle tries on through outages; what it throws all the same is thrown to each of the batch. */
  constructor(settle: (items: readonly SettleItem[]) => Promise<SettleReport>) {
    this.#settle = settle
    const run = (entries: readonly Entry[]) => this.#run(entries)
    this.#moves = new Lane(run, IN_FLIGHT.moves, MAX_BATCH)
    this.#smallFanOuts = new Lane(run, IN_FLIGHT.smallFanOuts, MAX_FAN_OUTS)
    this.#fanOuts = new Lane(run, IN_FLIGHT.fanOuts, 1)
  }

  /** Attempts handed over that are not settled yet. */
  get pending(): number {
    return this.#moves.pending + this.#smallFanOuts.pending + this.#fanOuts.pending
  }

  /** Resolves when the attempt's end has been committed, or refused. */
  settle(item: SettleItem): Promise<SettleFate> {
    const lane = this.#laneOf(item)
    return new Promise((resolve, reject) => lane.add({ item, resolve, reject }))
  }

  #laneOf(item: SettleItem): Lane {
    if (item.outcome.kind !== 'waiting') return this.#moves
    return isSmallFanOut(item) ? this.#smallFanOuts : this.#fanOuts
  }

  async #run(entries: readonly Entry[]): Promise<void> {
    try {
      const report = await this.#settle(entries.map((entry) => entry.item))
      const stale = new Set(report.stale)
      const refused = new Set(report.refused.map(({ id }) => id))
      const unsettled = new Set(report.unsettled.map(({ id }) => id))
      const fateOf = (id: string): SettleFate =>
        stale.has(id) ? 'stale' : refused.has(id) ? 'refused' : unsettled.has(id) ? 'unsettled' : 'settled'
      for (const { item, resolve } of entries) resolve(fateOf(item.job.id))
    } catch (error) {
      for (const { reject } of entries) reject(error)
    }
  }
}

interface Entry {
  item: SettleItem
  resolve(fate: SettleFate): void
  reject(error: unknown): void
}

/** A queue whose entries are run in batches, a few at a time. */
class Lane {
  readonly #run: (entries: readonly Entry[]) => Promise<void>
  readonly #maxInFlight: number
  readonly #maxBatch: number
  #queue: Entry[] = []
  #inFlight = 0
  #running = 0
  #scheduled = false

  constructor(run: (entries: readonly Entry[]) => Promise<void>, maxInFlight: number, maxBatch: number) {
    this.#run = run
    this.#maxInFlight = maxInFlight
    this.#maxBatch = maxBatch
  }

  get pending(): number {
    return this.#queue.length + this.#running
  }

  add(entry: Entry): void {
    this.#queue.push(entry)
    this.#schedule()
  }

  // Handlers that end in the same turn of the event loop go into one batch.
  #schedule(): void {
    if (this.#scheduled) return
    this.#scheduled = true
    setImmediate(() => {
      this.#scheduled = false
      while (this.#queue.length > 0 && this.#inFlight < this.#maxInFlight) {
        void this.#start(this.#queue.splice(0, this.#maxBatch))
      }
    })
  }

  async #start(batch: readonly Entry[]): Promise<void> {
    this.#inFlight++
    this.#running += batch.length
    await this.#run(batch)
    this.#inFlight--
    this.#running -= batch.length
    if (this.#queue.length > 0) this.#schedule()
  }
}
