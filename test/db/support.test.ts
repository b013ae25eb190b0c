import { expect, test } from 'vitest'
import { createTestDatabase } from '../support/database.ts'
import { until } from '../support/until.ts'

test('test databases are separate clones and go when dropped', async () => {
  const [one, other] = await Promise.all([createTestDatabase(), createTestDatabase()])
  await one.pool.query('create table only_here (a int)')
  const seen = await other.pool.query("select to_regclass('only_here') found")
  expect(seen.rows).toEqual([{ found: null }])
  await one.drop()
  const left = await other.pool.query('select datname from pg_database where datname = $1', [
    new URL(one.connectionString).pathname.slice(1),
  ])
  expect(left.rows).toEqual([])
  await other.drop()
})

test('until gives the first truthy value, through errors', async () => {
  let calls = 0
  const value = await until(() => {
    calls++
    if (calls === 1) throw new Error('not yet')
    return calls === 3 && 'there'
  })
  expect(value).toBe('there')
  expect(calls).toBe(3)
})

test('until says what it waited for and what it saw', async () => {
  await expect(until(() => 0, { timeout: 60, what: 'a number' })).rejects.toThrow(
    'Waited 60 ms in vain for: a number; it last gave 0',
  )
  await expect(until(() => new Promise(() => {}), { timeout: 60, what: 'an answer' })).rejects.toThrow(
    'it last threw Error: the condition did not answer in time',
  )
})
