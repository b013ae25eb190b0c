import pg from 'pg'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { defineJob } from '../../src/index.ts'
import { type Api, startApi } from './api.ts'

let api: Api
// Nobody mends what these tests break.
beforeAll(async () => {
  api = await startApi({
    start: false,
    jobs: [defineJob({ type: 'limited' }, { concurrency: { limit: 1 }, async run() {} })],
  })
})
beforeEach(async () => {
  await api.test.pool.query('truncate coppice.job, coppice.job_event, coppice.assignee, coppice.worker cascade')
})
afterAll(() => api.stop())

const sql = (text: string, ...parameters: unknown[]) => api.test.pool.query(text, parameters)

/** Parents without open children that nobody woke, the longest wait first. */
async function stuck(count: number, more: object = {}): Promise<string[]> {
  const parents = Array.from({ length: count }, () => ({ type: 'p', children: [{ type: 'a' }], ...more }))
  const ids = (await api.engine.enqueueMany(parents)).map(({ id }) => id)
  await sql(`update coppice.job set state = 'completed' where parent_id = any($1::uuid[])`, ids)
  for (const [n, id] of ids.entries()) {
    await sql(
      `update coppice.job set open_children = 0, waiting_since = now() - $2 * interval '1 min' where id = $1`,
      id,
      100 - n,
    )
  }
  return ids.map((id) => `JB_${id}`)
}

test('explain: reason, sentence, facts, the jobs it speaks of, and what is next', async () => {
  const [tree] = await api.engine.enqueueMany([
    { type: 'root', timeouts: { wait: '1h' }, children: [{ type: 'mid', children: [{ type: 'leaf', key: 'k' }] }] },
  ])
  const { job } = await api.ask(
    `query ($id: ID!) { job(id: $id) { explain {
      reason sentence facts count jobs { id type state parent { type } } next nextAt } } }`,
    { id: tree!.id },
  )
  expect(job.explain).toHaveLength(1)
  const [{ facts, ...explanation }] = job.explain
  expect(explanation).toEqual({
    reason: 'OPEN_CHILDREN',
    sentence: expect.stringMatching(
      /^It has waited less than a second for its only child\. Held up by JB_\S+ \(leaf k\), which waits for a worker: none lives\.$/,
    ),
    count: 1,
    jobs: [
      { id: expect.any(String), type: 'leaf', state: 'QUEUED', parent: { type: 'mid' } },
      { id: expect.any(String), type: 'mid', state: 'WAITING', parent: { type: 'root' } },
    ],
    next: 'When all of them have ended, it aggregates. If it still waits after 1 h, it fails.',
    nextAt: expect.stringMatching(/^\d{4}-.*Z$/),
  })
  expect(facts).toMatchObject({ open: 1, leaves: [{ job: explanation.jobs[0].id, depth: 2, reason: 'no_worker' }] })
})

test('limits of types that the server knows count', async () => {
  const [running, queued] = await api.engine.enqueueMany([{ type: 'limited' }, { type: 'limited' }])
  await sql(
    `insert into coppice.worker (id, host, pid, queues, types, concurrency, beat_interval, schema_version)
     values (gen_random_uuid(), 'forge', 1, '{}', '{limited}', 10, 5000, 1)`,
  )
  await sql(
    `update coppice.job set state = 'running', claimed_at = now(), worker_id = (select id from coppice.worker) where id = $1`,
    running!.id,
  )
  const { job } = await api.ask('query ($id: ID!) { job(id: $id) { explain { reason jobs { id } } } }', {
    id: queued!.id,
  })
  expect(job.explain).toEqual([{ reason: 'CONCURRENCY_LIMIT', jobs: [{ id: `JB_${running!.id}` }] }])
})

test('explain of fifty jobs, with the jobs that it speaks of, takes as many statements as of one', async () => {
  const parent = { type: 'p', children: [{ type: 'p', children: Array(3).fill({ type: 'a' }) }] }
  await api.engine.enqueueMany(Array(50).fill(parent))
  const names: string[] = []
  const { query } = pg.Client.prototype
  // biome-ignore lint/suspicious/noExplicitAny: every form of the call is handed on as it is.
  pg.Client.prototype.query = function (this: pg.Client, ...args: any[]): any {
    const [first] = args
    const name = /\/\* coppice:(\S+) \*\//.exec(String(typeof first === 'string' ? first : (first?.text ?? '')))?.[1]
    if (name) names.push(name)
    return (query as (...all: unknown[]) => unknown).apply(this, args)
  }
  const statementsOf = async (first: number) => {
    names.length = 0
    const { jobs } = await api.ask(
      `query ($first: Int!) { jobs(filter: { roots: true }, first: $first) {
        nodes { explain { reason jobs { id explain { reason } } } } } }`,
      { first },
    )
    expect(jobs.nodes).toHaveLength(first)
    for (const node of jobs.nodes) expect(node.explain[0].jobs).toHaveLength(4)
    return [...names]
  }
  try {
    const one = await statementsOf(1)
    expect(await statementsOf(50)).toEqual(one)
    // Once for the roots, once for the jobs below that they speak of.
    expect(one.filter((name) => name === 'explain.subjects')).toHaveLength(2)
    expect(one.filter((name) => name === 'reads.jobs-by-id')).toHaveLength(1)
  } finally {
    pg.Client.prototype.query = query
  }
})

test('stuck parents: due and withheld ones, the longest wait first, in pages from either end', async () => {
  const ids = await stuck(5)
  const [waiting] = await api.engine.enqueueMany([{ type: 'p', children: [{ type: 'a' }] }])
  await sql('update coppice.job set ephemeral = true where id = $1', ids[1]!.slice(3))
  await sql(`update coppice.job set assignee_id = 'ada' where id = $1`, ids[2]!.slice(3))
  await sql('update coppice.job set archived_at = now() where id = $1', ids[3]!.slice(3))
  // Plain SQL let it wait: since when is not known.
  await sql('update coppice.job set waiting_since = null where id = $1', ids[4]!.slice(3))
  const listed = [ids[0], ids[1], ids[2], ids[4]]
  const page = async (args: string) => {
    const { stuckParents } = await api.ask(
      `{ stuckParents(${args}) { edges { cursor node { id explain { reason } } }
        pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } }`,
    )
    return {
      ids: stuckParents.edges.map((edge: { node: { id: string } }) => edge.node.id),
      reasons: stuckParents.edges.map(
        (edge: { node: { explain: { reason: string }[] } }) => edge.node.explain[0]!.reason,
      ),
      info: stuckParents.pageInfo,
    }
  }
  const all = await page('first: 10')
  expect(all).toMatchObject({
    ids: listed,
    reasons: ['WAKE_DUE', 'WAKE_WITHHELD', 'ASSIGNEE_NOT_ACTIVE', 'WAKE_DUE'],
    info: { hasNextPage: false, hasPreviousPage: false },
  })
  expect(all.ids).not.toContain(`JB_${waiting!.id}`)

  const first = await page('first: 2')
  expect(first).toMatchObject({ ids: listed.slice(0, 2), info: { hasNextPage: true } })
  const second = await page(`first: 2, after: "${first.info.endCursor}"`)
  expect(second).toMatchObject({ ids: listed.slice(2), info: { hasNextPage: false, hasPreviousPage: true } })
  const last = await page('last: 3')
  expect(last).toMatchObject({ ids: listed.slice(1), info: { hasNextPage: false, hasPreviousPage: true } })
  expect(await page('last: 1')).toMatchObject({ ids: listed.slice(3), info: { hasPreviousPage: true } })
  const before = await page(`last: 3, before: "${second.info.startCursor}"`)
  expect(before).toMatchObject({ ids: listed.slice(0, 2), info: { hasNextPage: true, hasPreviousPage: false } })
  // The row of the cursor may be gone.
  await sql('delete from coppice.job where id = $1', listed[1]!.slice(3))
  expect((await page(`first: 2, after: "${first.info.endCursor}"`)).ids).toEqual(listed.slice(2))

  const refused = await api.run('{ stuckParents(after: "nonsense") { nodes { id } } }')
  expect(refused.errors![0]!.extensions.code).toBe('BAD_REQUEST')
})

test('orphans: active jobs whose parent has ended or is gone, in pages', async () => {
  const children = Array(3).fill({ type: 'a' })
  const [ended, kept] = await api.engine.enqueueMany([
    { type: 'p', children },
    { type: 'p', orphanPolicy: 'keep', children },
  ])
  await sql(`update coppice.job set state = 'failed', finished_at = now() where id = any($1::uuid[])`, [
    ended!.id,
    kept!.id,
  ])
  const read = async (args: string) => {
    const { orphans } = await api.ask(
      `{ orphans(${args}) { nodes { id parentId explain { reason } } pageInfo { hasNextPage endCursor } } }`,
    )
    return orphans
  }
  const all = await read('first: 10')
  expect(all.nodes).toHaveLength(3)
  for (const node of all.nodes) {
    expect(node).toMatchObject({ parentId: `JB_${ended!.id}` })
    expect(node.explain[0]).toEqual({ reason: 'ORPHANED' })
  }
  const first = await read('first: 2')
  expect(first).toMatchObject({ nodes: all.nodes.slice(0, 2), pageInfo: { hasNextPage: true } })
  const rest = await read(`first: 2, after: "${first.pageInfo.endCursor}"`)
  expect(rest).toMatchObject({ nodes: all.nodes.slice(2), pageInfo: { hasNextPage: false } })
  expect((await read('last: 1')).nodes).toEqual(all.nodes.slice(2))
})

test('what an operator asks at 3 a.m.: what is stuck, and why, in one query', async () => {
  const [held] = await stuck(1, { assigneeId: 'ada' })
  await api.engine.setAssignee('ada', 'stopped')
  const { stuckParents, oldest, orphans } = await api.ask(`query WhatIsStuck {
    stuckParents(first: 20) { nodes { ...Stuck } pageInfo { hasNextPage endCursor } }
    oldest: jobs(filter: { states: [WAITING] }, orderBy: { field: CREATED_AT, direction: ASC }, first: 5) { nodes { ...Stuck } }
    orphans(first: 5) { nodes { id type parentId } }
  }
  fragment Stuck on Job {
    id
    type
    wave
    assigneeId
    assignee { status }
    receipt { source wave deliveredAttempt at forced }
    explain { reason sentence count jobs { id type state } next nextAt }
  }`)
  expect(stuckParents.nodes).toMatchObject([
    { id: held, assigneeId: 'AS_ada', assignee: { status: 'STOPPED' }, explain: [{ reason: 'ASSIGNEE_NOT_ACTIVE' }] },
  ])
  expect(oldest.nodes).toEqual(stuckParents.nodes)
  expect(orphans.nodes).toEqual([])
})
