import { afterAll, beforeAll, expect, it } from 'vitest'
import type { Database } from '../../src/db/database.ts'
import { statement } from '../../src/db/statement.ts'
import { type Tx, transaction } from '../../src/db/transaction.ts'
import { InvalidStateError } from '../../src/engine/errors.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { interleavingsOf } from '../support/interleavings.ts'
import { explore, type Race } from '../support/isolation.ts'

// The harness itself, on two tables of its own: it has to see what is known to be wrong, and a step that waits.

let test: TestDatabase
beforeAll(async () => {
  test = await createTestDatabase()
  await test.pool.query(`
    create table parent (id int primary key, state text not null, wakes int not null);
    create table child (id int primary key, state text not null)`)
})
afterAll(() => test.drop())

const run = (tx: Tx, name: string, sql: string, parameters: unknown[] = []) =>
  tx.query(
    statement<{ id: number; state: string }>(name, () => sql),
    parameters,
  )

async function setup(): Promise<void> {
  await test.pool.query(`
    truncate parent, child;
    insert into parent values (1, 'waiting', 0);
    insert into child values (1, 'open'), (2, 'open')`)
}

const NO_OPEN_CHILD = `not exists (select from child where state = 'open')`

/** The way that everybody thinks of first. */
const settleNaively = (child: number) => (db: Database) =>
  transaction(db, async (tx) => {
    await run(tx, 'end', `update child set state = 'ended' where id = $1`, [child])
    await run(
      tx,
      'wake',
      `update parent set state = 'woken', wakes = wakes + 1 where state = 'waiting' and ${NO_OPEN_CHILD}`,
    )
  })

/** The way that holds: first the lock, and then, in a statement of its own, the look. */
const settleUnderLock = (child: number) => (db: Database) =>
  transaction(db, async (tx) => {
    await run(tx, 'end', `update child set state = 'ended' where id = $1`, [child])
    await run(tx, 'lock', 'select * from parent for no key update')
    await run(
      tx,
      'wake',
      `update parent set state = 'woken', wakes = wakes + 1 where state = 'waiting' and ${NO_OPEN_CHILD}`,
    )
  })

/** Adds a child, unless the parent was woken. */
async function add(db: Database): Promise<void> {
  await transaction(db, async (tx) => {
    const [parent] = await run(tx, 'lock', 'select * from parent for no key update')
    if (parent?.state !== 'waiting')
      throw new InvalidStateError('00000000-0000-7000-8000-000000000000', 'woken', 'added to')
    await run(tx, 'add', `insert into child values (3, 'open')`)
  })
}

async function expectWoken(): Promise<void> {
  const { rows } = await test.pool.query('select state, wakes from parent')
  expect(rows, 'lost wake').toEqual([{ state: 'woken', wakes: 1 }])
}

async function expectNotEarly(): Promise<void> {
  const { rows } = await test.pool.query(
    `select from parent where state = 'woken' and exists (select from child where state = 'open')`,
  )
  expect(rows, 'early wake').toEqual([])
}

const naive: Race<void> = { setup, sessions: { one: settleNaively(1), two: settleNaively(2) }, check: expectWoken }

it('finds the lost wake of two last children, and prints the schedule and the seed', async () => {
  const failure = await explore(test, naive, { seed: 7 }).then(
    () => undefined,
    (error: Error) => error,
  )
  expect(failure?.message).toMatch(/lost wake/)
  expect(failure?.message).toMatch(/ISOLATION_SEED=7/)
  const steps = failure!.message.split('\n').filter((line) => /^ +\d+\. /.test(line))
  // Both looked before either had committed.
  const at = (step: string) => steps.findIndex((line) => line.includes(step))
  expect(Math.max(at('one: wake'), at('two: wake'))).toBeLessThan(Math.min(at('one: commit'), at('two: commit')))
})

it('finds the early wake: after waiting for the lock, only the locked row is looked at again', async () => {
  const oneLeft = async () => {
    await setup()
    await test.pool.query(`update child set state = 'ended' where id = 2`)
  }
  const race = (settle: (child: number) => (db: Database) => Promise<void>): Race<void> => ({
    setup: oneLeft,
    sessions: { settle: settle(1), add },
    check: expectNotEarly,
  })
  await expect(explore(test, race(settleNaively))).rejects.toThrow(/early wake[\s\S]*settle: waits for a lock in wake/)
  const found = await explore(test, race(settleUnderLock), { limit: 60 })
  // Either came first: the child was added in time, or refused.
  expect(found).toMatchObject({ exhaustive: true, conflicts: [] })
  expect(Object.keys(found.ends).sort()).toEqual(['settle ok, add INVALID_STATE', 'settle ok, add ok'])
})

it('goes through every interleaving of a pair that holds, and sees the steps that wait', async () => {
  const sessions = { one: settleUnderLock(1), two: settleUnderLock(2) }
  const found = await explore(test, { setup, sessions, check: expectWoken }, { limit: 70 })
  expect(found).toMatchObject({ exhaustive: true, conflicts: [], ends: { 'one ok, two ok': expect.any(Number) } })
  // Of the 70 interleavings of four steps each, those in which locks are held across the other's steps come down to one.
  expect(found.schedules).toBeGreaterThan(10)
  expect(found.schedules).toBeLessThan(70)
  expect(found.blocked).toBeGreaterThan(5)
})

it('takes a sample when there are more, the same for the same seed', async () => {
  const sessions = { one: settleUnderLock(1), two: settleUnderLock(2), add: (db: Database) => add(db).catch(() => {}) }
  const race: Race<void> = { setup, sessions, check: expectNotEarly }
  const found = await explore(test, race, { limit: 12, seed: 3 })
  expect(found.exhaustive).toBe(false)
  expect(found.schedules).toBeGreaterThan(6)
  expect(await explore(test, race, { limit: 12, seed: 3 })).toEqual(found)
})

it('goes over to a sample when conflicts make many more of them than there seemed to be', async () => {
  let tries = 0
  const impatient = (db: Database) =>
    transaction(db, async (tx) => {
      await run(tx, 'try', 'select * from parent where id <> $1 for no key update nowait', [--tries])
    }).catch(() => {})
  const found = await explore(
    test,
    { setup, sessions: { one: impatient, two: impatient }, check: async () => {} },
    { limit: 6 },
  )
  expect(found.exhaustive).toBe(false)
  expect(found.conflicts).toContain('55P03')
})

it('sees a deadlock, and the victim run again', async () => {
  const swap = (first: number, second: number) => (db: Database) =>
    transaction(db, async (tx) => {
      await run(tx, 'first', `update child set state = 'ended' where id = $1`, [first])
      await run(tx, 'second', `update child set state = 'ended' where id = $1`, [second])
    })
  const sessions = { up: swap(1, 2), down: swap(2, 1) }
  let done = 0
  const check = async () => {
    const { rows } = await test.pool.query(`select from child where state = 'ended'`)
    expect(rows).toHaveLength(2)
    done++
  }
  const found = await explore(test, { setup, sessions, check }, { limit: 60 })
  expect(found).toMatchObject({ exhaustive: true, ends: { 'up ok, down ok': done } })
  expect(new Set(found.conflicts)).toEqual(new Set(['40P01']))
})

it('throws what is no refusal', async () => {
  const broken = (db: Database) => transaction(db, (tx) => run(tx, 'nonsense', 'select nonsense'))
  await expect(explore(test, { setup, sessions: { broken }, check: async () => {} })).rejects.toThrow(
    /column "nonsense" does not exist[\s\S]*1\. broken: nonsense/,
  )
})

it('counts interleavings', () => {
  expect(interleavingsOf(['a', 'a', 'b', 'b'])).toBe(6)
  expect(interleavingsOf(['a', 'b', 'c'])).toBe(6)
  expect(interleavingsOf([...'aaaabbbb'])).toBe(70)
})
