import type { Logger } from 'pino'
import type { Database } from '../../db/database.ts'
import { statement, unindexed } from '../../db/statement.ts'
import { transaction } from '../../db/transaction.ts'
import type { JobRegistry } from '../definition/job-registry.ts'
import { formatJobId } from '../ids.ts'
import { READY } from './claim-sql.ts'
import { faultOfConcurrencyKey } from './concurrency-limit.ts'

/** Most queued jobs that one look goes over. */
const PAGE = 500
/** A round begins at least this often while there are claims, though there be no news. */
const ROUND_MS = 1000

/**
 * Gives concurrency keys to jobs that were enqueued by processes that do not know their type, or knew no limit for it:
 * until then they have none, and are not claimed. They have no mark that an index could find them by without every other
 * job paying for it, so the queued jobs of limited types are gone over in rounds, a page at a time.
 */
export class KeyAdoption {
  readonly #db: Database
  readonly #jobs: JobRegistry
  readonly #logger: Logger
  readonly #types: readonly string[]
  /** Where the round under way goes on; null: none is. */
  #position: Position | null = null
  #news = true
  #begunAt = Number.NEGATIVE_INFINITY

  constructor({ db, jobs, logger }: { db: Database; jobs: JobRegistry; logger: Logger }) {
    this.#db = db
    this.#jobs = jobs
    this.#logger = logger
    this.#types = [...jobs.limits.keys()]
  }

  /** Whether there are queued jobs that were not looked at since the last news, so that a look should follow soon. */
  get unfinished(): boolean {
    return this.#news || this.#position !== null
  }

  /** Something happened: jobs may have been enqueued. */
  news(): void {
    this.#news = true
  }

  /** Looks at the next queued jobs, if it is time to, and gives keys to those that have none. */
  async look(): Promise<void> {
    let from = this.#position
    if (from === null) {
      const now = performance.now()
      if (!this.#news && now - this.#begunAt < ROUND_MS) return
      this.#news = false
      this.#begunAt = now
      from = START
    }
    try {
      const rows = await this.#db.query(nextJobs, [
        this.#types,
        from.ordinal,
        from.queue,
        from.priority,
        from.run_at,
        from.id,
        PAGE,
      ])
      await this.#adopt(rows.filter((row) => !row.has_key))
      const last = rows.find((row) => row.n === PAGE)
      this.#position = last ?? null
    } catch (error) {
      // The round begins anew: nothing of it is lost but time.
      this.#position = null
      this.#news = true
      throw error
    }
  }

  async #adopt(rows: readonly QueuedRow[]): Promise<void> {
    if (rows.length === 0) return
    const keys = await Promise.all(rows.map((row) => this.#keyOf(row)))
    await transaction(this.#db, (tx) => tx.query(giveKeys, [rows.map((row) => row.id), keys]))
  }

  /** A job that can be given no key of its own counts with the others of that kind: its handler will refuse it. */
  async #keyOf({ id, type, payload }: QueuedRow): Promise<string> {
    try {
      const key = (await this.#jobs.get(type)?.concurrencyKey?.(payload)) ?? ''
      const fault = faultOfConcurrencyKey(key)
      if (fault === undefined) return key
      throw new TypeError(`It ${fault}`)
    } catch (error) {
      this.#logger.warn(
        { job: formatJobId(id), err: error },
        'The job has no concurrency key: it counts under the empty one',
      )
      return ''
    }
  }
}

/** A place in the order of `job_ready`, with the number of the type from 1. `run_at` is text: a Date has no microseconds. */
interface Position {
  ordinal: number
  queue: string
  priority: number
  run_at: string
  id: string
}

const START: Position = {
  ordinal: 0,
  queue: '',
  priority: 0,
  run_at: '-infinity',
  id: '00000000-0000-0000-0000-000000000000',
}

interface QueuedRow extends Position {
  /** Its number in the page, from 1. */
  n: number
  type: string
  has_key: boolean
  /** Null if it has a key. */
  payload: unknown
}

// Types come in their order, for a lateral join goes through them one by one; sorted, it would read a page of each.
// Only jobs without a key come out, and the last one of a full page: that is where the next one goes on.
const nextJobs = statement<QueuedRow>(
  'adopt.next-jobs',
  (t) => `
  with page as materialized (
    select row_number() over () as n, p.* from (
      (select $2::int as ordinal, j.id, j.type, j.queue, j.priority, j.run_at, j.concurrency_key, j.payload
       from ${t.job} j
       where ${READY} and j.type = ($1::text[])[$2::int]
         and (j.queue, j.priority, j.run_at, j.id) > ($3, $4::int, $5::timestamptz, $6::uuid)
       order by j.queue, j.priority, j.run_at, j.id limit $7)
      union all
      (select l.ordinal::int, j.* from unnest($1::text[]) with ordinality l(type, ordinal)
       cross join lateral (
         select j.id, j.type, j.queue, j.priority, j.run_at, j.concurrency_key, j.payload from ${t.job} j
         where ${READY} and j.type = l.type
         order by j.queue, j.priority, j.run_at, j.id limit $7) j
       where l.ordinal > $2)
      limit $7) p
  )
  select n::int, ordinal, id, type, queue, priority, run_at::text, concurrency_key is not null as has_key,
    case when concurrency_key is null then payload end as payload
  from page where concurrency_key is null or n = $7`,
)

// Not a move: no event, and so no new version. Takes no tree lock and skips rows that others hold, like a claim. Rows are
// locked one by one through the primary key, as in a claim.
const giveKeys = statement(
  'adopt.give-keys',
  (t) => `
  with locked as materialized (
    select l.id, given.key from unnest($1::uuid[], $2::text[]) given(id, key)
    cross join lateral (
      select j.id from ${t.job} j where j.id = given.id and ${unindexed(READY)} and j.concurrency_key is null
      for no key update skip locked) l
  )
  update ${t.job} j set concurrency_key = locked.key from locked
  where j.id = any(array(select id from locked)) and j.id = locked.id
    and ${unindexed(`j.state = 'queued'`)} and j.concurrency_key is null`,
)
