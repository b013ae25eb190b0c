import { expect, test } from 'vitest'
import { treeBucket } from '../../src/engine/locks.ts'
import { defineJob } from '../../src/index.ts'
import { until } from '../support/until.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const FOLDERS = 20
const FILES = 1000
const OTHER_TREES = 30

const engines = useEngines()
const { engineWith } = engines

test('a cascade of 20,000 descendants runs beside the settles of other trees: they go on (case 55)', {
  timeout: 120_000,
}, async () => {
  const { pool, schema } = engines.database
  const elsewhere = named('elsewhere')
  const leaf = defineJob({ type: named('leaf') }, { run: () => 1 })
  const parent = defineJob(
    { type: named('parent') },
    { ingest: (ctx) => ctx.spawn([leaf.with(), leaf.with()]), aggregate: (ctx) => ctx.childCounts() },
  )
  const { engine } = await engineWith([leaf, parent])
  const { engine: steering } = await engineWith([], { start: false })
  // No worker here knows the types of the large tree. Its last level is one job, so that all the others come before it.
  const large = await steering.enqueue({
    type: elsewhere,
    children: Array.from({ length: FOLDERS }, (_, folder) => ({
      type: elsewhere,
      children: Array.from({ length: FILES }, (_, file) => ({
        type: elsewhere,
        ...(folder === 0 && file === 0 && { children: [{ type: elsewhere, key: 'deepest' }] }),
      })),
    })),
  })
  await pool.query(`analyze ${schema}.job`)

  // While the test holds the deepest row, the cascade has written all the others and cannot end.
  const client = await pool.connect()
  await client.query('begin')
  await client.query(`select from ${schema}.job where tree_id = $1 and key = 'deepest' for update`, [large.id])
  let over = false
  const cascade = steering.deleteJob(large.id).finally(() => {
    over = true
  })
  await until(
    async () => {
      const { rows } = await pool.query(
        `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`,
      )
      return rows.length > 0
    },
    { timeout: 60_000, what: 'the cascade to come to the deepest row' },
  )

  // Trees share locks by bucket: those of the large tree's own have to wait for it, the others must not.
  const handles = await engine.enqueueMany(Array.from({ length: OTHER_TREES }, () => parent.with()))
  const free = handles.filter((handle) => treeBucket(handle.id) !== treeBucket(large.id))
  for (const handle of free) {
    expect(await engine.waitFor(handle, deadline)).toMatchObject({ result: { total: 2, completed: 2 } })
  }
  expect(free.length).toBeGreaterThan(OTHER_TREES / 2)
  expect(over).toBe(false)
  const { rows: before } = await pool.query(
    `select count(*)::int as n from ${schema}.job where tree_id = $1 and state = 'cancelled'`,
    [large.id],
  )
  expect(before).toEqual([{ n: 0 }])

  await client.query('rollback')
  client.release()
  expect(await cascade).toMatchObject({ cancelledDescendants: FOLDERS + FOLDERS * FILES + 1 })
  const { rows } = await pool.query(
    `select state, cancel_code, count(*)::int as n from ${schema}.job where tree_id = $1 group by 1, 2`,
    [large.id],
  )
  expect(rows).toEqual([{ state: 'cancelled', cancel_code: 'parent_deleted', n: FOLDERS + FOLDERS * FILES + 1 }])
  for (const handle of handles) expect(await engine.waitFor(handle, deadline)).toMatchObject({ state: 'completed' })
})
