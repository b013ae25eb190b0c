import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../support/until.ts'
import { type Api, startApi } from './api.ts'

let api: Api
beforeAll(async () => {
  api = await startApi()
})
afterAll(() => api.stop())

const ENQUEUE = `mutation ($input: EnqueueJobInput!) {
  enqueueJob(input: $input) {
    __typename
    ... on EnqueueJobSuccess { deduplicated job { id state phase childCount openChildren payload metadata key } }
    ... on ValidationError { message code issues { path message } }
  }
}`

const WATCH = `subscription { jobEvents { events { kind jobId type from to job { state version } version } cursor caughtUp ended } }`

test('a nested tree is enqueued, read back, and told on WebSocket and on SSE', async () => {
  const socket = await api.socket()
  socket.subscribe('1', WATCH)
  const stream = await api.stream(WATCH)
  await until(() => socket.next('1').length > 0 && stream.next().length > 0, { what: 'first frames' })
  expect(socket.next('1')[0].data.jobEvents).toMatchObject({ events: [], caughtUp: true, ended: null })

  const input = {
    type: 'report',
    payload: { title: 'all' },
    metadata: { page: 'home' },
    failureTolerance: '10%',
    timeouts: { wait: '1h', aggregate: 5000, onWaitTimeout: 'AGGREGATE' },
    children: [
      { type: 'digest', key: 'a', payload: { path: 'a' } },
      { type: 'report', key: 'b', children: [{ type: 'digest', key: 'c', priority: -5, maxRetries: 0 }] },
    ],
  }
  const { enqueueJob } = await api.ask(ENQUEUE, { input })
  expect(enqueueJob).toMatchObject({
    __typename: 'EnqueueJobSuccess',
    deduplicated: false,
    job: { state: 'WAITING', phase: 'INGEST', childCount: 2, openChildren: 2, payload: { title: 'all' } },
  })
  const id = enqueueJob.job.id as string
  expect(id).toMatch(/^JB_[0-9a-f-]{36}$/)

  const { jobTree } = await api.ask(
    `query ($id: ID!) {
      jobTree(id: $id) {
        cursor
        counts { total open queued waiting }
        root { id failureTolerance timeouts { ingest aggregate wait onWaitTimeout } }
        nodes { nodes { id depth key state parentId treeId priority maxRetries } pageInfo { hasNextPage } }
      }
    }`,
    { id },
  )
  expect(jobTree.counts).toEqual({ total: 4, open: 4, queued: 2, waiting: 2 })
  expect(jobTree.root).toEqual({
    id,
    failureTolerance: '10%',
    timeouts: { ingest: null, aggregate: 5000, wait: 3_600_000, onWaitTimeout: 'AGGREGATE' },
  })
  const nodes = jobTree.nodes.nodes as { id: string; depth: number; key: string | null; parentId: string | null }[]
  expect(nodes.map(({ depth, key }) => [depth, key])).toEqual(
    expect.arrayContaining([
      [0, null],
      [1, 'a'],
      [1, 'b'],
      [2, 'c'],
    ]),
  )
  expect(nodes.map((node) => node.depth)).toEqual([0, 1, 1, 2])
  expect(nodes.at(-1)!.parentId).toBe(nodes.find((node) => node.key === 'b')!.id)

  for (const frames of [() => socket.next('1'), () => stream.next()]) {
    const created = await until(
      () => {
        const events = frames().flatMap((frame) => frame.data.jobEvents.events)
        return events.length >= 4 && events
      },
      { what: 'four events' },
    )
    expect(created).toHaveLength(4)
    expect(new Set(created.map((event: { jobId: string }) => event.jobId))).toEqual(new Set(nodes.map((n) => n.id)))
    for (const event of created) {
      expect(event).toMatchObject({ kind: 'CREATED', from: null, version: 1 })
      expect(event.job.version).toBeGreaterThanOrEqual(event.version)
    }
  }

  // The tree's cursor was read after the events: going on from it brings none of them again.
  const resumed = await api.stream(`subscription ($after: String!) { jobEvents(after: $after) { events { jobId } } }`, {
    after: jobTree.cursor,
  })
  await until(() => resumed.next().length > 0, { what: 'a first frame' })
  const { enqueueJob: second } = await api.ask(ENQUEUE, { input: { type: 'digest' } })
  const events = await until(
    () => {
      const found = resumed.next().flatMap((frame) => frame.data.jobEvents.events)
      return found.length > 0 && found
    },
    { what: 'the event behind the cursor' },
  )
  expect(events).toEqual([{ jobId: second.job.id }])
})

test('a key that is taken answers with the job that has it, in any order', async () => {
  const input = { type: 'once', key: 'k', payload: { n: 1 } }
  const first = (await api.ask(ENQUEUE, { input })).enqueueJob
  const again = (await api.ask(ENQUEUE, { input: { ...input, payload: { n: 2 } } })).enqueueJob
  expect([first.deduplicated, again.deduplicated]).toEqual([false, true])
  expect(again.job).toMatchObject({ id: first.job.id, payload: { n: 1 } })
  const { enqueueJobs } = await api.ask(
    `mutation ($jobs: [EnqueueJobInput!]!) { enqueueJobs(input: { jobs: $jobs }) {
      ... on EnqueueJobsSuccess { results { deduplicated job { id key } } } } }`,
    { jobs: [{ type: 'once', key: 'new' }, input] },
  )
  expect(enqueueJobs.results).toMatchObject([
    { deduplicated: false, job: { key: 'new' } },
    { deduplicated: true, job: { id: first.job.id } },
  ])
})

test('what is wrong with the input is a typed error with paths, and nothing is written', async () => {
  const before = await api.test.pool.query('select count(*) from coppice.job')
  const nul = (await api.ask(ENQUEUE, { input: { type: 'a', payload: { text: 'a\0b' } } })).enqueueJob
  expect(nul).toMatchObject({ __typename: 'ValidationError', code: 'VALIDATION' })
  expect(nul.issues).toEqual([{ path: ['payload'], message: expect.stringContaining('NUL') }])

  const deep = { type: 'a', children: [{ type: 'b' }, { type: '', children: [{ type: 'c', maxRetries: -1 }] }] }
  const issues = (await api.ask(ENQUEUE, { input: deep })).enqueueJob.issues as { path: string[] }[]
  expect(issues.map((issue) => issue.path)).toEqual([
    ['children', '1', 'type'],
    ['children', '1', 'children', '0', 'maxRetries'],
  ])

  const many = await api.ask(
    `mutation ($jobs: [EnqueueJobInput!]!) { enqueueJobs(input: { jobs: $jobs }) {
      ... on ValidationError { issues { path } } } }`,
    { jobs: [{ type: 'a' }, { type: 'a', priority: 1, key: '' }] },
  )
  expect(many.enqueueJobs.issues).toEqual([{ path: ['jobs', '1', 'key'] }])
  const after = await api.test.pool.query('select count(*) from coppice.job')
  expect(after.rows).toEqual(before.rows)
})

test('more than 10,000 jobs in one call are refused', async () => {
  const jobs = Array.from({ length: 10_001 }, () => ({ type: 'x' }))
  const { enqueueJobs } = await api.ask(
    `mutation ($jobs: [EnqueueJobInput!]!) { enqueueJobs(input: { jobs: $jobs }) {
      __typename ... on ValidationError { message } } }`,
    { jobs },
  )
  expect(enqueueJobs).toMatchObject({ __typename: 'ValidationError', message: expect.stringContaining('10000') })
})

test('a value that no scalar takes is a top-level BAD_REQUEST', async () => {
  for (const wrong of [{ timeouts: { wait: '5 parsecs' } }, { failureTolerance: '101%' }, { runAt: 'tomorrow' }]) {
    const answer = await api.run(ENQUEUE, { input: { type: 'a', ...wrong } })
    expect(answer.errors?.map((error) => error.extensions.code)).toEqual(['BAD_REQUEST'])
  }
})

test('children are added from outside; a parent that is gone is a typed error', async () => {
  const { enqueueJob } = await api.ask(ENQUEUE, { input: { type: 'p', children: [{ type: 'c' }] } })
  const SPAWN = `mutation ($id: ID!, $children: [EnqueueJobInput!]!) {
    spawnChildren(input: { parentId: $id, children: $children }) {
      __typename
      ... on SpawnChildrenSuccess { parent { id openChildren } results { job { parentId parentWave } deduplicated } }
      ... on ValidationError { issues { path } }
      ... on ParentGoneError { code message parent { state } }
    }
  }`
  const id = enqueueJob.job.id as string
  const { spawnChildren } = await api.ask(SPAWN, { id, children: [{ type: 'c' }, { type: 'c' }] })
  expect(spawnChildren).toMatchObject({
    parent: { id, openChildren: 3 },
    results: [{ job: { parentId: id, parentWave: 1 } }, { job: { parentId: id, parentWave: 1 } }],
  })
  const wrong = await api.ask(SPAWN, { id, children: [{ type: 'c' }, { type: '' }] })
  expect(wrong.spawnChildren.issues).toEqual([{ path: ['children', '1', 'type'] }])

  await api.ask(`mutation ($id: ID!) { cancelJob(input: { id: $id }) { __typename } }`, { id })
  const gone = await api.ask(SPAWN, { id, children: [{ type: 'c' }] })
  expect(gone.spawnChildren).toMatchObject({
    __typename: 'ParentGoneError',
    code: 'PARENT_GONE',
    parent: { state: 'CANCELLED' },
  })
  const nobody = await api.ask(SPAWN, { id: 'JB_01890000-0000-7000-8000-000000000000', children: [{ type: 'c' }] })
  expect(nobody.spawnChildren).toMatchObject({ __typename: 'ParentGoneError', parent: null })
})
