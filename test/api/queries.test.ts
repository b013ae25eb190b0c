import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import type { Outcome } from '../../src/engine/job.ts'
import { prepareJobs } from '../../src/engine/prepare.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { addWorker } from '../support/verbs.ts'
import { type Api, startApi } from './api.ts'

let api: Api
let workerId: string
beforeAll(async () => {
  api = await startApi()
  workerId = await addWorker(api.test)
})
afterAll(() => api.stop())

const NOBODY = 'JB_01890000-0000-7000-8000-00000000ffff'

/** One attempt of the only job of a type, ended so. */
async function attempt(type: string, outcome: Outcome): Promise<void> {
  const db = api.engine.database
  const [job] = await claimJobs(db, { workerId, types: [type], queues: null, limit: 1 })
  if (!job) throw new Error(`no ${type} to claim`)
  const report = await settle(db, [{ job, outcome }], { actor: `WK_${workerId}` })
  expect(report.settled).toEqual([job.id])
}

test('the whole story of a job: phases, attempts, errors, events, receipt', async () => {
  const [parent] = await api.engine.enqueueMany([{ type: 'story', payload: { n: 1 } }], { actor: 'tester' })
  const error = { message: 'no route', code: 'NETWORK' as const, stack: 'Error: no route\n    at here' }
  await attempt('story', { kind: 'retry', error, delayMs: 0 })
  await attempt('story', { kind: 'waiting', children: await prepareJobs([{ type: 'part', key: 'x' }]) })
  await attempt('part', { kind: 'completed', result: { part: 1 } })
  await attempt('story', { kind: 'completed', result: { sum: 1 } })

  const { job } = await api.ask(
    `query ($id: ID!) {
      job(id: $id) {
        id state phase wave attempt retryCount maxRetries version completionEpoch payload result error errorCode errorStack
        cancelCode cancelReason parentId parentWave depth queue key ephemeral archivedAt onChildFailure orphanPolicy
        failureTolerance timeouts { ingest aggregate wait onWaitTimeout } progress { current }
        createdAt startedAt finishedAt updatedAt
        attempts { number phase wave workerId startedAt endedAt endedIn error errorCode errorStack }
        newest: attempts(first: 1) { number }
        events(first: 100) { nodes { id kind from to phase wave attempt version actor reason detail } }
        receipt { parentId childSetKey operationId wave deliveredAttempt source forced at }
        childCounts { total completed open }
        children { nodes { id key state result parentWave parent { id } root { id } } }
      }
    }`,
    { id: parent!.id },
  )
  expect(job).toMatchObject({
    id: `JB_${parent!.id}`,
    state: 'COMPLETED',
    phase: 'AGGREGATE',
    wave: 1,
    attempt: 3,
    maxRetries: 2,
    completionEpoch: 1,
    payload: { n: 1 },
    result: { sum: 1 },
    error: 'no route',
    errorCode: 'NETWORK',
    errorStack: 'Error: no route\n    at here',
    cancelCode: null,
    cancelReason: null,
    parentId: null,
    parentWave: null,
    depth: 0,
    queue: 'default',
    key: null,
    ephemeral: false,
    archivedAt: null,
    onChildFailure: 'CONTINUE',
    orphanPolicy: 'CANCEL',
    failureTolerance: null,
    timeouts: { ingest: null, aggregate: null, wait: null, onWaitTimeout: 'FAIL' },
    progress: null,
    childCounts: { total: 1, completed: 1, open: 0 },
    newest: [{ number: 3 }],
  })
  const id = job.id as string
  expect(job.children.nodes).toEqual([
    {
      id: expect.any(String),
      key: 'x',
      state: 'COMPLETED',
      result: { part: 1 },
      parentWave: 1,
      parent: { id },
      root: { id },
    },
  ])
  for (const instant of [job.createdAt, job.startedAt, job.finishedAt, job.updatedAt]) {
    expect(instant).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  }
  expect(job.attempts).toMatchObject([
    { number: 3, phase: 'AGGREGATE', wave: 1, endedIn: 'COMPLETED', error: null, errorCode: null },
    { number: 2, phase: 'INGEST', wave: 0, endedIn: 'WAITING', error: null },
    { number: 1, phase: 'INGEST', wave: 0, endedIn: 'QUEUED', error: 'no route', errorCode: 'NETWORK' },
  ])
  expect(job.attempts[2]).toMatchObject({ workerId: `WK_${workerId}`, errorStack: error.stack })
  const moves = (job.events.nodes as { kind: string; from: string | null; to: string }[]).map((e) => [e.from, e.to])
  expect(moves).toEqual([
    [null, 'QUEUED'],
    ['QUEUED', 'RUNNING'],
    ['RUNNING', 'QUEUED'],
    ['QUEUED', 'RUNNING'],
    ['RUNNING', 'WAITING'],
    ['WAITING', 'QUEUED'],
    ['QUEUED', 'RUNNING'],
    ['RUNNING', 'COMPLETED'],
  ])
  const versions = (job.events.nodes as { version: number }[]).map((event) => event.version)
  expect(versions).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
  expect(job.version).toBe(8)
  expect(job.events.nodes[0].actor).toBe('tester')
  expect(job.receipt).toMatchObject({ parentId: id, wave: 1, deliveredAttempt: 3, source: 'EDGE', forced: false })
  expect(job.receipt.operationId).toMatch(/^job_children_completed:/)
})

test('an attempt that has not ended, and one that a deletion ended', async () => {
  const [running, deleted] = await api.engine.enqueueMany([{ type: 'open' }, { type: 'open' }])
  const held = await claimJobs(api.engine.database, { workerId, types: ['open'], queues: null, limit: 2 })
  expect(held).toHaveLength(2)
  const { job } = await api.ask('query ($id: ID!) { job(id: $id) { attempts { number endedAt endedIn } } }', {
    id: running!.id,
  })
  expect(job.attempts).toEqual([{ number: 1, endedAt: null, endedIn: null }])
  await api.engine.cancelJob(running!.id)
  const cancelled = await api.ask(
    'query ($id: ID!) { job(id: $id) { state cancelCode attempts { endedAt endedIn } } }',
    { id: running!.id },
  )
  expect(cancelled.job).toMatchObject({
    state: 'CANCELLED',
    cancelCode: 'REQUESTED',
    attempts: [{ endedIn: 'CANCELLED' }],
  })
  await api.engine.deleteJob(deleted!.id)
  const events = await api.ask(
    'query ($id: ID!) { events(filter: { jobIds: [$id] }) { events { kind from to job { id } } } }',
    { id: deleted!.id },
  )
  expect(events.events.events.at(-1)).toEqual({ kind: 'DELETED', from: 'RUNNING', to: null, job: null })
})

test('node and nodes find jobs, events and assignees by global id', async () => {
  const [handle] = await api.engine.enqueueMany([{ type: 'n', assigneeId: 'someone' }])
  const id = `JB_${handle!.id}`
  await api.ask('mutation { setAssignee(input: { id: "someone", status: PAUSED }) { __typename } }')
  const found = await api.ask(
    `query ($id: ID!) { job(id: $id) { assigneeId assignee { id status } events { nodes { id } } } }`,
    { id },
  )
  expect(found.job).toMatchObject({ assigneeId: 'AS_someone', assignee: { id: 'AS_someone', status: 'PAUSED' } })
  const eventId = found.job.events.nodes[0].id as string
  expect(eventId).toMatch(/^EV_\d+$/)
  const { nodes, node } = await api.ask(
    `query ($ids: [ID!]!, $id: ID!) {
      nodes(ids: $ids) { __typename id ... on Job { type } ... on JobEvent { kind } ... on Assignee { status } }
      node(id: $id) { __typename id }
    }`,
    { ids: [eventId, NOBODY, id, 'AS_someone', 'AS_nobody', 'EV_999999999', id], id },
  )
  expect(nodes).toEqual([
    { __typename: 'JobEvent', id: eventId, kind: 'CREATED' },
    null,
    { __typename: 'Job', id, type: 'n' },
    { __typename: 'Assignee', id: 'AS_someone', status: 'PAUSED' },
    null,
    null,
    { __typename: 'Job', id, type: 'n' },
  ])
  expect(node).toEqual({ __typename: 'Job', id })
})

test('bare ids do where a job is meant; ids that make no sense are a top-level BAD_REQUEST', async () => {
  const [handle] = await api.engine.enqueueMany([{ type: 'bare' }])
  const byBare = await api.ask('query ($id: ID!) { job(id: $id) { id } }', { id: handle!.id.toUpperCase() })
  expect(byBare.job.id).toBe(`JB_${handle!.id}`)
  expect((await api.ask('query ($id: ID!) { job(id: $id) { id } }', { id: NOBODY })).job).toBeNull()
  expect((await api.ask('query ($id: ID!) { jobTree(id: $id) { cursor } }', { id: NOBODY })).jobTree).toBeNull()

  const wrong: [string, Record<string, unknown>][] = [
    ['query ($id: ID!) { job(id: $id) { id } }', { id: 'garbage' }],
    ['query ($id: ID!) { job(id: $id) { id } }', { id: '' }],
    ['query ($id: ID!) { job(id: $id) { id } }', { id: 'WK_01890000-0000-7000-8000-000000000000' }],
    ['query ($id: ID!) { node(id: $id) { id } }', { id: handle!.id }],
    ['query ($id: ID!) { node(id: $id) { id } }', { id: 'EV_-1' }],
    ['query ($id: ID!) { node(id: $id) { id } }', { id: `EV_${'9'.repeat(30)}` }],
    ['query ($id: ID!) { jobTree(id: $id) { cursor } }', { id: '1' }],
    ['query ($ids: [ID!]!) { nodes(ids: $ids) { id } }', { ids: [] }],
    ['query ($ids: [ID!]!) { nodes(ids: $ids) { id } }', { ids: Array(101).fill(`JB_${handle!.id}`) }],
    ['query ($id: ID!) { jobs(filter: { ids: [$id] }) { nodes { id } } }', { id: 'x' }],
    ['query ($id: ID!) { jobs(filter: { treeId: $id }) { nodes { id } } }', { id: 'x' }],
    ['query ($id: ID!) { events(filter: { treeId: $id }) { cursor } }', { id: 'x' }],
    ['mutation ($id: ID!) { deleteJob(input: { id: $id }) { __typename } }', { id: 'x' }],
    ['mutation ($id: ID!) { enqueueJob(input: { type: "a", assigneeId: $id }) { __typename } }', { id: '' }],
    ['query ($key: String) { jobs(filter: { key: $key }) { nodes { id } } }', { key: 'a\0b' }],
    ['query ($m: JSON) { jobs(filter: { metadata: $m }) { nodes { id } } }', { m: { a: 'a\0b' } }],
    [
      'mutation ($id: ID!, $r: String) { cancelJob(input: { id: $id, reason: $r }) { __typename } }',
      { id: handle!.id, r: '\0' },
    ],
    ['{ jobs { nodes { nonsense } } }', {}],
    ['{ jobs { nodes { id } }', {}],
    ['query ($first: Int!) { jobs(first: $first) { nodes { id } } }', {}],
    ['query ($first: Int) { jobs(first: $first) { nodes { id } } }', { first: 'ten' }],
  ]
  for (const [query, variables] of wrong) {
    const answer = await api.run(query, variables)
    expect(
      answer.errors?.map((error) => error.extensions.code),
      `${query} ${JSON.stringify(variables)}`,
    ).toEqual(['BAD_REQUEST'])
  }
  expect(api.log).toEqual([])
})

test('events are pulled page by page, and an expired cursor says so', async () => {
  const tag = `pull-${randomUUID()}`
  for (let n = 0; n < 5; n++) await api.engine.enqueueMany([{ type: tag }])
  const QUERY = `query ($types: [String!], $after: String) {
    events(filter: { types: $types }, after: $after, first: 2) { events { id type } cursor caughtUp ended } }`
  const seen: string[] = []
  let after: string | null = null
  for (let page = 0; page < 50; page++) {
    const { events }: { events: { events: { id: string }[]; cursor: string; caughtUp: boolean } } = await api.ask(
      QUERY,
      {
        types: [tag],
        after,
      },
    )
    expect(events.events.length).toBeLessThanOrEqual(2)
    seen.push(...events.events.map((event) => event.id))
    after = events.cursor
    if (events.caughtUp && events.events.length === 0) break
  }
  expect(seen).toHaveLength(5)
  expect(new Set(seen).size).toBe(5)

  const { rows } = await api.test.pool.query('select floor::text from coppice.feed_floor')
  // A transaction after the cursor's snapshot, and retention up to there.
  await api.test.pool.query('select pg_current_xact_id()')
  await api.test.pool.query(`update coppice.feed_floor set floor = pg_snapshot_xmax(pg_current_snapshot())`)
  try {
    const { events } = await api.ask(QUERY, { types: [tag], after })
    expect(events).toMatchObject({ events: [], ended: 'CURSOR_EXPIRED' })
    expect(events.cursor).not.toBe(after)
    const fresh = await api.ask(QUERY, { types: [tag], after: events.cursor })
    expect(fresh.events).toMatchObject({ events: [], ended: null })
  } finally {
    await api.test.pool.query('update coppice.feed_floor set floor = $1::xid8', [rows[0].floor])
  }
})

test('viewer is anonymous and may do everything where no authentication is set up', async () => {
  expect(await api.ask('{ viewer { name role } }')).toEqual({ viewer: { name: 'anonymous', role: 'ADMIN' } })
})
