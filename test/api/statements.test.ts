import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { NewJob } from '../../src/engine/job.ts'
import { type Api, startApi } from './api.ts'

let api: Api
/** Statements of the reads that ran, by name; transactions count by their BEGIN. */
const statements: string[] = []
const { query } = pg.Client.prototype

beforeAll(async () => {
  // What is asked here is more than one operation may cost elsewhere.
  api = await startApi({ serving: { limits: { maxCost: 10_000_000 } } })
  // biome-ignore lint/suspicious/noExplicitAny: every form of the call is handed on as it is.
  pg.Client.prototype.query = function (this: pg.Client, ...args: any[]): any {
    const [first] = args
    const text = String(typeof first === 'string' ? first : (first?.text ?? ''))
    const name = /\/\* coppice:((?:reads|explain)\.[a-z-]+) \*\//.exec(text)?.[1]
    if (name) statements.push(name)
    else if (text.includes('isolation level repeatable read')) statements.push('begin')
    return (query as (...all: unknown[]) => unknown).apply(this, args)
  }
})
afterAll(async () => {
  pg.Client.prototype.query = query
  await api.stop()
})

/** A root with `width` parents below it, each with `width` leaves. */
function tree(width: number): NewJob {
  const leaf = { type: 'leaf', payload: { text: 'x'.repeat(50) } }
  const parent = { type: 'parent', children: Array<NewJob>(width).fill(leaf) }
  return { type: 'root', children: Array<NewJob>(width).fill(parent) }
}

const QUERY = `query ($id: ID!) {
  jobTree(id: $id) {
    cursor
    counts { total open }
    root { id state children(first: 5) { nodes { id } } }
    again: counts { total }
    nodes(first: 10000) {
      pageInfo { hasNextPage }
      nodes {
        id state payload
        parent { id state parent { id } }
        root { id state }
        childCounts { total }
        children(first: 3) {
          nodes {
            id parent { id } receipt { wave } attempts { number } worker { id }
            children(first: 2) { nodes { id events(last: 1) { nodes { kind } } explain { reason jobs { id } } } }
          }
          pageInfo { hasNextPage }
        }
        failed: children(filter: { states: [FAILED] }) { nodes { id } }
        events(first: 5) { nodes { id kind job { id } } }
        attempts(first: 2) { number }
        receipt { wave }
        assignee { id }
        worker { id }
      }
    }
  }
}`

async function statementsFor(width: number): Promise<{ total: number; names: string[] }> {
  const [handle] = await api.engine.enqueueMany([tree(width)])
  statements.length = 0
  const { jobTree } = await api.ask(QUERY, { id: handle!.id })
  const total = 1 + width + width * width
  expect(jobTree.nodes.nodes).toHaveLength(total)
  expect(jobTree.counts.total).toBe(total)
  expect(jobTree.again.total).toBe(total)
  for (const node of jobTree.nodes.nodes) expect(node.root.id).toBe(`JB_${handle!.id}`)
  return { total, names: [...statements].sort() }
}

test('a tree of 9,901 jobs takes as many statements as one of 7, however deep it is asked', {
  timeout: 180_000,
}, async () => {
  const small = await statementsFor(2)
  const large = await statementsFor(99)
  expect([small.total, large.total]).toEqual([7, 9901])
  expect(large.names).toEqual(small.names)
  // One snapshot for the tree and one for what is explained, then one statement for each kind of field and each way that lists are asked for. Parents
  // and roots are in the tree's own page.
  expect(large.names).toEqual([
    ...Array(2).fill('begin'),
    'explain.leaves',
    'explain.paused-ancestors',
    'explain.places',
    'explain.subjects',
    ...Array(2).fill('reads.attempts'),
    'reads.child-counts',
    ...Array(4).fill('reads.child-pages'),
    ...Array(2).fill('reads.event-pages'),
    'reads.jobs-by-id',
    'reads.receipts',
    'reads.snapshot',
    'reads.tree-counts',
    'reads.tree-id',
    'reads.tree-nodes',
    'reads.workers',
  ])
})

test('many trees, and lists of jobs with nested fields, are batched too', async () => {
  const handles = await api.engine.enqueueMany(Array.from({ length: 20 }, () => tree(1)))
  statements.length = 0
  const { jobs } = await api.ask(
    `{ jobs(filter: { types: ["root"] }, first: 20) {
      nodes { id root { id } children { nodes { parent { id } childCounts { total } } } events { nodes { job { id } } } } } }`,
  )
  expect(jobs.nodes).toHaveLength(handles.length)
  expect(statements.sort()).toEqual(['reads.child-counts', 'reads.child-pages', 'reads.event-pages', 'reads.job-page'])
})

test('large columns are read only where they are asked for', async () => {
  const [handle] = await api.engine.enqueueMany([
    { type: 'big', payload: { text: 'x'.repeat(1000) }, metadata: { a: 1 } },
  ])
  const seen: string[] = []
  // biome-ignore lint/suspicious/noExplicitAny: every form of the call is handed on as it is.
  const counted = pg.Client.prototype.query as any
  pg.Client.prototype.query = function (this: pg.Client, ...args: unknown[]) {
    const [first] = args as [string | { text: string }]
    seen.push(typeof first === 'string' ? first : first.text)
    return counted.apply(this, args)
  }
  try {
    await api.ask('query ($id: ID!) { job(id: $id) { id state } }', { id: handle!.id })
    const light = seen.find((text) => text.includes('reads.jobs-by-id'))!
    seen.length = 0
    const { job } = await api.ask(
      'query ($id: ID!) { job(id: $id) { ...P } } fragment P on Job { p: payload metadata }',
      { id: handle!.id },
    )
    const heavy = seen.find((text) => text.includes('reads.jobs-by-id'))!
    expect(light).toContain('null as payload')
    expect(heavy).toContain('j.payload')
    expect(heavy).toContain('null as result')
    expect(job).toEqual({ p: { text: 'x'.repeat(1000) }, metadata: { a: 1 } })
  } finally {
    pg.Client.prototype.query = counted
  }
})
