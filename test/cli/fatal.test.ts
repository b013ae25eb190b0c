import { afterAll, beforeAll, expect, test } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { envOf, killAll, type Running, start } from './run.ts'

let database: TestDatabase
const running: Running[] = []
beforeAll(async () => {
  database = await createTestDatabase()
})
afterAll(async () => {
  await killAll(running)
  await database.drop()
})

test('a worker that cannot go on ends its process with 1 and says why', { timeout: 120_000 }, async () => {
  const work = start(['work', '--jobs', 'examples/index.ts', '--heartbeat', '500ms'], envOf(database))
  running.push(work)
  await work.said(/^Working on /)
  await database.pool.query(
    `insert into ${database.schema}.migration (version, name, checksum) select 900 + v, 'future', 'x' from generate_series(1, 9) v`,
  )
  const { code, stderr } = await work.ended
  expect(code).toBe(1)
  expect(stderr.trim().split('\n').at(-1)).toMatch(/^The schema "coppice" is at version 909, but this program knows/)
})
