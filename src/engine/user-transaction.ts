import { CompiledQuery } from 'kysely'
import type pg from 'pg'
import { errorCodeOf } from '../db/connection-errors.ts'
import type { Database, Queryable } from '../db/database.ts'
import type { Statement } from '../db/statement.ts'
import { ValidationError } from './errors.ts'

/** What Coppice asks of a Kysely transaction, of whichever version. */
export interface KyselyTransaction {
  readonly isTransaction: boolean
  // biome-ignore lint/suspicious/noExplicitAny: Kysely's own types, of the user's copy of it
  executeQuery(query: any): Promise<{ rows: any[] }>
  withoutPlugins(): KyselyTransaction
}

/**
 * A transaction of the user's own on the database of Coppice: a client of `pg` (`Client` or `PoolClient`) on which BEGIN
 * was run, or a `Transaction` of Kysely on `pg`. Its role must be allowed to write Coppice's tables.
 */
export type UserTransaction = pg.ClientBase | KyselyTransaction

/** What a SAVEPOINT outside of a transaction fails with. */
const NO_ACTIVE_TRANSACTION = '25P01'

/**
 * Statements in a transaction that the user has open.
 *
 * A client that has none open would commit each statement by itself, and half a tree might be all that is ever written.
 * A savepoint tells exactly, whatever the driver knows: it is refused there, and costs nothing where nothing is written
 * under it.
 *
 * @throws {ValidationError} it is no transaction, or not an open one.
 */
export async function userTransaction(db: Database, given: UserTransaction): Promise<Queryable> {
  const run = runner(given)
  try {
    await run('savepoint coppice', [])
  } catch (error) {
    if (errorCodeOf(error) !== NO_ACTIVE_TRANSACTION) throw error
    throw refusal('has no transaction open: run BEGIN first')
  }
  await run('release savepoint coppice', [])
  return {
    async query<Row>(statement: Statement<Row>, parameters: readonly unknown[] = []) {
      return (await run(db.text(statement), parameters)) as Row[]
    },
  }
}

type Run = (sql: string, parameters: readonly unknown[]) => Promise<unknown[]>

function runner(given: UserTransaction): Run {
  if (typeof given !== 'object' || given === null) throw refusal('must be a client of pg or a Kysely transaction')
  if ('executeQuery' in given) {
    if (!given.isTransaction) throw refusal('is a Kysely instance: give the transaction')
    // Plugins rename columns.
    const plain = given.withoutPlugins()
    return async (sql, parameters) => (await plain.executeQuery(CompiledQuery.raw(sql, [...parameters]))).rows
  }
  // Each statement of a pool may go to another connection.
  if ('totalCount' in given) throw refusal('is a pool: give the client that the transaction is open on')
  if (typeof given.query !== 'function') throw refusal('must be a client of pg or a Kysely transaction')
  return async (sql, parameters) => (await given.query(sql, [...parameters])).rows
}

function refusal(message: string): ValidationError {
  return ValidationError.of('transaction', message)
}
