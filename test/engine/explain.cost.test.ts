import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Database } from '../../src/db/database.ts'
import { databaseOf } from '../../src/db/database.ts'
import { explainJobs } from '../../src/engine/explain/explain.ts'
import { defineJob } from '../../src/index.ts'
import { knowing } from '../support/explaining.ts'
import { plansOf } from '../support/plans.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

const jobs = knowing(defineJob({ type: 'a' }, { concurrency: { limit: 1 }, async run() {} }))

let v: Verbs
let waiting: string[]
let queued: string[]
beforeAll(async () => {
  v = await createVerbs()
  // What must not be read: jobs that have ended, alone and in a tree. The planner knows of nothing else.
  const { rows } = await v.test.pool.query(
    `insert into ${v.test.schema}.job (id, tree_id, type, state)
     select gen_random_uuid(), gen_random_uuid(), 'old', 'completed' from generate_series(1, 30000) returning tree_id`,
  )
  await v.test.pool.query(`alter table ${v.test.schema}.job set (autovacuum_enabled = false)`)
  await v.test.pool.query('vacuum analyze')
  expect(rows).toHaveLength(30_000)
  waiting = await v.enqueue(
    ...Array.from({ length: 30 }, () => ({
      type: 'p',
      children: [{ type: 'p', children: Array.from({ length: 4 }, () => ({ type: 'a', concurrencyKey: 'k' })) }],
    })),
  )
  queued = await v.enqueue(...Array.from({ length: 20 }, () => ({ type: 'a', concurrencyKey: 'k' })))
  await v.claim(1)
  await v.test.pool.query(
    `insert into ${v.test.schema}.job (id, tree_id, parent_id, type, state)
     select gen_random_uuid(), $1, case when n % 2 = 0 then $1::uuid end, 'old',
       case when n % 2 = 0 then 'completed' else 'queued' end
     from generate_series(1, 20000) n`,
    [waiting[0]],
  )
}, 60_000)
afterAll(() => v.close())

/** A database that notes which statements it is asked. */
function counting(): { db: Database; names: string[] } {
  const names: string[] = []
  const pool = Object.create(v.db.pool) as typeof v.db.pool
  pool.connect = (async () => {
    const client = await v.db.pool.connect()
    return new Proxy(client, {
      get(target, property) {
        if (property !== 'query') return Reflect.get(target, property, target)
        return (query: string | { text: string }, ...rest: unknown[]) => {
          const text = typeof query === 'string' ? query : query.text
          names.push(/coppice:(\S+)/.exec(text)?.[1] ?? text.split(' ')[0]!)
          return (target.query as (...all: unknown[]) => unknown)(query, ...rest)
        }
      },
    })
  }) as typeof pool.connect
  return { db: databaseOf(pool, v.db.schema), names }
}

test('fifty jobs take as many statements as one', async () => {
  const few = counting()
  await explainJobs(few.db, [waiting[0]!, queued[0]!], { jobs })
  const many = counting()
  const explained = await explainJobs(many.db, [...waiting, ...queued], { jobs })
  expect(explained.size).toBe(50)
  expect(many.names).toEqual(few.names)
  expect(many.names).toEqual([
    'begin',
    'explain.leaves',
    'explain.subjects',
    'explain.paused-ancestors',
    'reads.workers',
    'explain.slots',
    'explain.places',
    'commit',
  ])
})

test.each(['taken at rest', 'of the present'])(
  'no statement reads more than what lies around the jobs, with statistics %s',
  async (statistics) => {
    if (statistics === 'of the present') await v.test.pool.query('vacuum analyze')
    const ids = [...waiting, ...queued]
    const plans = await plansOf(
      v.db,
      (db) => explainJobs(db, ids, { jobs }),
      async () => {},
    )
    expect(plans.map(({ name }) => name)).toContain('explain.leaves')
    for (const { name, read, text } of plans) {
      // Within a few dozens for each job and its leaves, of 50,000.
      expect(read, `${name}\n${text}`).toBeLessThan(6000)
      expect(text, name).not.toMatch(/Seq Scan job\b/)
    }
  },
)
