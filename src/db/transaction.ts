import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { isRetryableConflict } from './connection-errors.ts'
import type { Database, Queryable } from './database.ts'
import { runStatement } from './direct.ts'
import type { Statement } from './statement.ts'

/** One transaction: runs statements on its own connection. */
export interface Tx extends Queryable {
  readonly db: Database
  readonly client: pg.ClientBase
  /** Has `tell` called once this run has committed. It must not throw. */
  afterCommit(tell: () => void): void
}

/** What a transaction asks for beyond the usual. */
export interface TransactionOptions {
  /** One snapshot for all its reads; read only. */
  repeatableRead?: boolean
  /** Longest statement; default 60 s. */
  statementTimeoutMs?: number
  /**
   * Its prepared statements are planned once, whatever their parameters, and read in the order of indexes. Otherwise the
   * server compares, and plans one whose LIMIT is a parameter anew each time.
   */
  planOnce?: boolean
}

/** Times a transaction is run again after a deadlock, a serialization failure or a lock timeout. */
const MAX_RERUNS = 10

/**
 * Runs `fn` in a transaction. Every setting is the transaction's own (SET LOCAL), so that it holds through a
 * transaction-mode pooler, and sent along with BEGIN. After a deadlock, a serialization failure or a lock timeout the
 * whole of `fn` runs again: it must have no effect outside the database that cannot be repeated.
 */
export async function transaction<T>(
  db: Database,
  fn: (tx: Tx) => Promise<T>,
  options: TransactionOptions = {},
): Promise<T> {
  for (let run = 1; ; run++) {
    const client = await db.pool.connect()
    const committed: (() => void)[] = []
    try {
      await client.query(beginText(options))
      const result = await fn(onClient(db, client, committed))
      await client.query('commit')
      client.release()
      for (const tell of committed) tell()
      return result
    } catch (error) {
      // A connection that cannot roll back is of no more use.
      const broken = await client.query('rollback').then(
        () => undefined,
        (rollbackError: Error) => rollbackError,
      )
      client.release(broken)
      if (!isRetryableConflict(error) || run > MAX_RERUNS) throw error
      await sleep(Math.random() * 10 * run)
    }
  }
}

/** Statements on a connection that a transaction is open on; what is to be told after its commit goes to `committed`. */
export function onClient(db: Database, client: pg.ClientBase, committed: (() => void)[] = []): Tx {
  return {
    db,
    client,
    afterCommit: (tell) => void committed.push(tell),
    async query<Row>(statement: Statement<Row>, parameters: readonly unknown[] = []) {
      return runStatement<Row>(client, statement, db.text(statement), parameters)
    },
  }
}

/** A transaction for what is read again and again: see {@link TransactionOptions.planOnce}. */
export function planOnce<T>(db: Database, fn: (tx: Tx) => Promise<T>): Promise<T> {
  return transaction(db, fn, { planOnce: true })
}

// JIT off: what the planner thinks of a statement that skips through an index is far too much, and compiling it would take
// longer than running it.
function beginText(options: TransactionOptions): string {
  const mode = options.repeatableRead ? 'isolation level repeatable read read only' : 'isolation level read committed'
  return (
    `begin ${mode}; set local synchronous_commit = on; set local idle_in_transaction_session_timeout = '10s'; ` +
    `set local lock_timeout = '10s'; set local jit = off; set local enable_seqscan = off; set local statement_timeout = ${options.statementTimeoutMs ?? 60_000}` +
    (options.planOnce ? '; set local plan_cache_mode = force_generic_plan; set local enable_bitmapscan = off' : '')
  )
}
