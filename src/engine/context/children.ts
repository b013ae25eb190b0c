import { NIL } from 'uuid'
import type { Database } from '../../db/database.ts'
import { statement } from '../../db/statement.ts'
import type { AnyContract, PayloadInput, ResultOutput } from '../definition/contract.ts'
import { parseJsonOrThrow } from '../definition/standard-schema.ts'
import { formatJobId } from '../ids.ts'
import type { CancelCode, FailureCode, Json } from '../job.ts'
import { JOB_STATES, type JobState, TERMINAL_STATES, type TerminalState } from '../states.ts'

/** How many children are read at a time. */
const PAGE = 500

interface ChildBase<Payload> {
  /** `JB_…` */
  id: string
  key: string | null
  type: string
  /** As it was given. */
  payload: Payload
}

/** A settled child: what it came to, by its state. */
export type Child<Payload = Json, Result = Json> =
  | (ChildBase<Payload> & { state: 'completed'; result: Result })
  | (ChildBase<Payload> & { state: 'failed'; error: { message: string; code: FailureCode } })
  | (ChildBase<Payload> & { state: 'cancelled'; cancelCode: CancelCode; cancelReason: string | null })

/** A settled child of a contract's type. */
export type ChildOf<C> = Child<PayloadInput<C>, ResultOutput<C>>

/** Which children to read. */
export interface ChildrenOptions<State extends TerminalState = TerminalState> {
  /** Default: the child set just settled. A number: the set of that wave. `all`: of every wave. */
  wave?: number | 'all'
  /** Default: all three. */
  states?: readonly State[]
}

/** How many children there are in each state. */
export type ChildCounts = Record<JobState, number> & {
  total: number
  /** Not ended yet. */
  open: number
}

/** Reads the children of one job. Archived children are no members of a child set: they are left out. */
export interface ChildrenReader {
  /**
   * Settled children in the order of their ids, read page by page, so that a million do not fill the memory.
   *
   * @param contract children of its type only, results typed.
   * @throws {ValidationError} when a stored result is not what the contract says.
   */
  children<C extends AnyContract, State extends TerminalState = TerminalState>(
    contract: C,
    options?: ChildrenOptions<State>,
  ): AsyncIterableIterator<Extract<ChildOf<C>, { state: State }>>
  children<State extends TerminalState = TerminalState>(
    options?: ChildrenOptions<State>,
  ): AsyncIterableIterator<Extract<Child, { state: State }>>
  /** Counts children by state, those that are still open too; by default of the child set just settled. */
  childCounts(options?: { wave?: number | 'all' }): Promise<ChildCounts>
}

/** One page of settled children. */
export interface ChildrenPage {
  /** Behind this id. */
  after: string
  /** Null: of every wave. */
  wave: number | null
  /** Null: of every type. */
  type: string | null
  states: readonly TerminalState[]
  limit: number
}

/** Where the children of one job are read. */
export interface ChildrenStore {
  /** Settled children in the order of their ids. */
  childrenPage(page: ChildrenPage): Promise<ChildRow[]>
  /** How many there are in each state; states without any may be left out. */
  childCounts(wave: number | null): Promise<{ state: JobState; count: number }[]>
}

/** The children of a job in the database. */
export class DatabaseChildren implements ChildrenStore {
  readonly #db: Database
  readonly #parentId: string

  constructor(db: Database, parentId: string) {
    this.#db = db
    this.#parentId = parentId
  }

  childrenPage({ after, wave, type, states, limit }: ChildrenPage): Promise<ChildRow[]> {
    return this.#db.query(childrenPage, [this.#parentId, after, wave, type, states, limit])
  }

  childCounts(wave: number | null): Promise<{ state: JobState; count: number }[]> {
    return this.#db.query(childCounts, [this.#parentId, wave])
  }
}

/** What the reader needs to know of the parent. */
export interface ChildrenSource {
  store: ChildrenStore
  /** The child set just settled. */
  spawnWave: number
  /** Runs one read; tries again while the database is away. */
  attempt: <T>(read: () => Promise<T>) => Promise<T>
}

/** Reads the settled children of a parent, page by page. */
export async function* readChildren(
  source: ChildrenSource,
  contract: AnyContract | undefined,
  options: ChildrenOptions = {},
): AsyncIterableIterator<Child> {
  const wave = waveOf(source, options.wave)
  let after: string = NIL
  for (;;) {
    const page = { after, wave, type: contract?.type ?? null, states: options.states ?? TERMINAL_STATES, limit: PAGE }
    const rows = await source.attempt(() => source.store.childrenPage(page))
    for (const row of rows) yield await childOf(row, contract)
    if (rows.length < PAGE) return
    after = rows.at(-1)!.id
  }
}

/** Counts the children of a parent by state. */
export async function countChildren(source: ChildrenSource, wave?: number | 'all'): Promise<ChildCounts> {
  const rows = await source.attempt(() => source.store.childCounts(waveOf(source, wave)))
  const counts = { total: 0, open: 0 } as ChildCounts
  for (const state of JOB_STATES) counts[state] = 0
  for (const { state, count } of rows) {
    counts[state] = count
    counts.total += count
    if (!(TERMINAL_STATES as readonly string[]).includes(state)) counts.open += count
  }
  return counts
}

function waveOf(source: ChildrenSource, wave: number | 'all' = source.spawnWave): number | null {
  return wave === 'all' ? null : wave
}

/** A settled child as it is stored. */
export interface ChildRow {
  id: string
  key: string | null
  type: string
  payload: Json
  state: TerminalState
  result: Json
  error: string | null
  error_code: FailureCode | null
  cancel_code: CancelCode | null
  cancel_reason: string | null
}

async function childOf(row: ChildRow, contract: AnyContract | undefined): Promise<Child> {
  const base = { id: formatJobId(row.id), key: row.key, type: row.type, payload: row.payload }
  switch (row.state) {
    case 'completed': {
      const result = (await parseJsonOrThrow(contract?.result, row.result, `result of ${base.id}`)) as Json
      return { ...base, state: 'completed', result }
    }
    case 'failed':
      return { ...base, state: 'failed', error: { message: row.error ?? '', code: row.error_code ?? 'UNKNOWN' } }
    case 'cancelled':
      return {
        ...base,
        state: 'cancelled',
        cancelCode: row.cancel_code ?? 'requested',
        cancelReason: row.cancel_reason,
      }
  }
}

const childrenPage = statement<ChildRow>(
  'children.page',
  (t) => `
  select id, key, type, payload, state, result, error, error_code, cancel_code, cancel_reason
  from ${t.job}
  where parent_id = $1 and id > $2 and archived_at is null
    and ($3::int is null or parent_wave = $3) and ($4::text is null or type = $4) and state = any ($5)
  order by id limit $6`,
)

const childCounts = statement<{ state: JobState; count: number }>(
  'children.counts',
  (t) => `
  select state, count(*)::int as count from ${t.job}
  where parent_id = $1 and archived_at is null and ($2::int is null or parent_wave = $2)
  group by state`,
)
