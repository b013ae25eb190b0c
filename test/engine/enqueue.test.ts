import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { enqueueJobs } from '../../src/engine/enqueue.ts'
import { ValidationError } from '../../src/engine/errors.ts'
import type { NewJob } from '../../src/engine/job.ts'
import { MAX_TREE_DEPTH, prepareJobs, prepareOneJob } from '../../src/engine/prepare.ts'
import { findViolations } from '../support/invariants.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

let v: Verbs
beforeAll(async () => {
  v = await createVerbs()
})
afterAll(async () => {
  expect(await findViolations(v.test.pool)).toEqual([])
  await v.close()
})

const enqueue = async (...jobs: NewJob[]) => enqueueJobs(v.db, await prepareJobs(jobs), { actor: 'test' })
const inTree = async (id: string) =>
  (await v.test.pool.query('select * from coppice.job where tree_id = $1 order by depth, id', [id])).rows

describe('enqueue', () => {
  it('writes a nested tree: ids, depths, counters, waves, states', async () => {
    const [root] = await enqueue({
      type: 'p',
      children: [{ type: 'a' }, { type: 'p', children: [{ type: 'b', priority: 3 }, { type: 'b' }] }],
    })
    const rows = await inTree(root!.id)
    expect(
      rows.map((row) => [row.type, row.depth, row.state, row.child_count, row.open_children, row.parent_wave]),
    ).toEqual([
      ['p', 0, 'waiting', 2, 2, null],
      ['a', 1, 'queued', 0, 0, 1],
      ['p', 1, 'waiting', 2, 2, 1],
      ['b', 2, 'queued', 0, 0, 1],
      ['b', 2, 'queued', 0, 0, 1],
    ])
    expect(rows[3].parent_id).toBe(rows[2].id)
    expect(rows.every((row) => row.tree_id === root!.id)).toBe(true)
  })

  it('answers a taken key with the job that has it, and writes nothing of the new tree', async () => {
    const [first] = await enqueue({ type: 'p', key: 'k', children: [{ type: 'a' }] })
    const [second, third] = await enqueue(
      { type: 'p', key: 'k', children: [{ type: 'a' }, { type: 'a' }] },
      { type: 'a', key: 'k' },
    )
    expect(second).toEqual({ id: first!.id, deduplicated: true })
    expect(third).toMatchObject({ deduplicated: false })
    expect(await inTree(first!.id)).toHaveLength(2)
    await v.complete(...(await v.claim()))
    await v.complete(...(await v.claim()))
    expect((await v.row(first!.id)).state).toBe('completed')
    expect(await enqueue({ type: 'p', key: 'k' })).toEqual([{ id: first!.id, deduplicated: true }])
  })

  it('takes the same key once among siblings, and again under another parent', async () => {
    const twins = [
      { type: 'a', key: 'same' },
      { type: 'a', key: 'same' },
      { type: 'b', key: 'same' },
    ]
    const [one, two] = await enqueue({ type: 'p', children: twins }, { type: 'p', children: twins })
    expect(await v.row(one!.id)).toMatchObject({ child_count: 2, open_children: 2 })
    expect(await v.row(two!.id)).toMatchObject({ child_count: 2, open_children: 2 })
  })

  it('gives rivals with one key one job, none of them nothing (case 63)', async () => {
    for (let round = 0; round < 10; round++) {
      const keys = Array.from({ length: 5 }, (_, index) => `r${round}-${index}`)
      const results = await Promise.all(
        Array.from({ length: 8 }, (_, rival) => {
          const order = rival % 2 === 0 ? keys : keys.toReversed()
          return enqueue(...order.map((key) => ({ type: 'b', key, children: [{ type: 'c' }] })))
        }),
      )
      const all = results.flat()
      expect(new Set(all.map((result) => result.id)).size).toBe(5)
      expect(all.filter((result) => !result.deduplicated)).toHaveLength(5)
    }
  })

  it('takes more jobs in one call than a function has room for arguments', async () => {
    const many = await prepareJobs(Array.from({ length: 130_000 }, () => ({ type: 'large' })))
    expect(await enqueueJobs(v.db, many, { actor: 'test' })).toHaveLength(130_000)
    const { rows } = await v.test.pool.query(`delete from coppice.job where type = 'large' returning id`)
    expect(rows).toHaveLength(130_000)
  })

  it('is all or none', async () => {
    const before = (await v.test.pool.query('select count(*) from coppice.job')).rows
    await expect(enqueue({ type: 'a' }, { type: '' })).rejects.toThrow(ValidationError)
    expect((await v.test.pool.query('select count(*) from coppice.job')).rows).toEqual(before)
  })
})

describe('the door', () => {
  const issuesOf = async (job: unknown) =>
    prepareOneJob(job as NewJob).then(
      () => [],
      (error: ValidationError) => error.issues.map((issue) => [issue.path.join('.'), issue.message]),
    )

  it.each([
    ['no type', {}, 'type'],
    ['an empty type', { type: '' }, 'type'],
    ['NUL in the payload', { type: 'a', payload: { x: ['a\0'] } }, 'payload'],
    ['NUL in a property name', { type: 'a', payload: { 'a\0': 1 } }, 'payload'],
    ['half a surrogate pair', { type: 'a', payload: '\ud800' }, 'payload'],
    ['a payload over 1 MiB', { type: 'a', payload: 'x'.repeat(1024 * 1024) }, 'payload'],
    ['a cycle', { type: 'a', payload: cycle() }, 'payload'],
    ['an infinite number', { type: 'a', payload: [Number.POSITIVE_INFINITY, null] }, 'payload'],
    ['a BigInt', { type: 'a', payload: { n: 1n } }, 'payload'],
    ['NUL in the key', { type: 'a', key: 'a\0' }, 'key'],
    ['a priority that is no integer', { type: 'a', priority: 1.5 }, 'priority'],
    ['a priority that is too large', { type: 'a', priority: 2 ** 31 }, 'priority'],
    ['negative retries', { type: 'a', maxRetries: -1 }, 'maxRetries'],
    ['an invalid date', { type: 'a', runAt: new Date(Number.NaN) }, 'runAt'],
    ['an unknown policy', { type: 'a', onChildFailure: 'explode' }, 'onChildFailure'],
    ['a tolerance over 100%', { type: 'a', failureTolerance: '101%' }, 'failureTolerance'],
    ['a malformed timeout', { type: 'a', timeouts: { wait: 'soon' } }, 'timeouts.wait'],
    ['children that are no list', { type: 'a', children: {} }, 'children'],
    [
      'a bad grandchild',
      { type: 'a', children: [{ type: 'a' }, { type: 'a', children: [{ type: 7 }] }] },
      'children.1.children.0.type',
    ],
  ])('refuses %s, and says where', async (_, job, path) => {
    expect((await issuesOf(job)).map(([where]) => where)).toEqual([path])
  })

  it('takes text that only looks like a NUL escape, and anything else jsonb can hold', async () => {
    const payload = { text: String.raw`\u0000 \ud800`, emoji: '🌳', nothing: null, nested: [[[{}]]], n: 1e300 }
    const [job] = await enqueue({ type: 'a', payload })
    expect((await v.row(job!.id)).payload).toEqual(payload)
  })

  it('refuses a tree that is too deep', async () => {
    const deep = (levels: number): NewJob =>
      levels === 0 ? { type: 'a' } : { type: 'a', children: [deep(levels - 1)] }
    expect(await issuesOf(deep(MAX_TREE_DEPTH - 1))).toEqual([])
    expect(await issuesOf(deep(MAX_TREE_DEPTH))).toHaveLength(1)
  })

  function cycle() {
    const value: { self?: unknown } = {}
    value.self = value
    return value
  }
})
