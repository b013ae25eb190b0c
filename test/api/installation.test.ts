import { afterAll, beforeAll, expect, test } from 'vitest'
import { z } from 'zod'
import { defineJob } from '../../src/index.ts'
import { createGate } from '../support/gate.ts'
import { until } from '../support/until.ts'
import { type Api, startApi } from './api.ts'

const gate = createGate()
const held = defineJob(
  { type: 'held', payload: z.object({ size: z.number().int(), note: z.string().optional() }) },
  { run: () => gate.opened },
)
const dated = defineJob({ type: 'dated', payload: z.object({ at: z.date() }) }, { run: () => {} })

let api: Api
beforeAll(async () => {
  api = await startApi({ jobs: [held, dated], queues: ['fast', 'default'], concurrency: 3 })
})
afterAll(() => api.stop())

test('who runs a job, the workers, and a worker by its id', async () => {
  const [one, two] = await api.engine.enqueueMany([held.with({ size: 1 }), { type: 'elsewhere', queue: 'other' }])
  const JOB =
    'query ($id: ID!) { job(id: $id) { state worker { id host pid queues types concurrency running stopping } } }'
  const job = await until(
    async () => {
      const { job } = await api.ask(JOB, { id: one!.id })
      return job.state === 'RUNNING' && job
    },
    { what: 'the job to run' },
  )
  const { workers } = await api.ask('{ workers { id host pid queues types concurrency running stopping } }')
  expect(workers).toEqual([
    {
      id: expect.stringMatching(/^WK_[0-9a-f-]{36}$/),
      host: expect.any(String),
      pid: process.pid,
      queues: ['fast', 'default'],
      types: ['held', 'dated'],
      concurrency: 3,
      running: 1,
      stopping: false,
    },
  ])
  expect(job.worker).toEqual(workers[0])
  expect((await api.ask(JOB, { id: two!.id })).job).toEqual({ state: 'QUEUED', worker: null })
  const unknown = 'WK_01890000-0000-7000-8000-000000000000'
  const { nodes, jobs } = await api.ask(
    `query ($ids: [ID!]!) {
      nodes(ids: $ids) { __typename id ... on Worker { running startedAt heartbeatAt } }
      jobs(filter: { workerIds: $ids }) { nodes { id } } }`,
    { ids: [workers[0].id, unknown] },
  )
  expect(nodes).toEqual([
    {
      __typename: 'Worker',
      id: workers[0].id,
      running: 1,
      startedAt: expect.any(String),
      heartbeatAt: expect.any(String),
    },
    null,
  ])
  expect(jobs.nodes).toEqual([{ id: `JB_${one!.id}` }])
  const wrong = await api.run('{ jobs(filter: { workerIds: ["WK_7"] }) { nodes { id } } }')
  expect(wrong.errors![0]).toMatchObject({
    extensions: { code: 'BAD_REQUEST' },
    message: expect.stringContaining('WK_7'),
  })
  // The library has the same.
  expect(await api.engine.workers()).toMatchObject([{ pid: process.pid, running: 1 }])
})

test('types: what live processes know, with the schema of the payload where it has one, and counts', async () => {
  const { jobTypes } = await api.ask('{ jobTypes { name payloadSchema workers counts { total running queued } } }')
  expect(jobTypes).toMatchObject([
    { name: 'dated', payloadSchema: null, workers: 1, counts: { total: 0, running: 0, queued: 0 } },
    {
      name: 'held',
      payloadSchema: {
        type: 'object',
        properties: { size: { type: 'integer' }, note: { type: 'string' } },
        required: ['size'],
      },
      workers: 1,
      counts: { total: 1, running: 1, queued: 0 },
    },
  ])
  expect(await api.engine.jobTypes()).toMatchObject([{ name: 'dated' }, { name: 'held', workers: 1 }])
})

test('queues: of jobs and of workers, what is due longest, and counts', async () => {
  const due = new Date('2026-01-02T03:04:05.000Z')
  await api.engine.enqueueMany([
    { type: 'elsewhere', queue: 'other', runAt: due },
    { type: 'elsewhere', queue: 'other', priority: 5, runAt: new Date('2026-02-02Z') },
    { type: 'elsewhere', queue: 'later', runAt: new Date('2099-01-01Z') },
  ])
  const { queues } = await api.ask('{ queues { name oldestDueAt counts { total queued running } } }')
  expect(queues).toEqual([
    { name: 'default', oldestDueAt: null, counts: { total: 1, queued: 0, running: 1 } },
    { name: 'fast', oldestDueAt: null, counts: { total: 0, queued: 0, running: 0 } },
    { name: 'later', oldestDueAt: null, counts: { total: 1, queued: 1, running: 0 } },
    { name: 'other', oldestDueAt: due.toISOString(), counts: { total: 3, queued: 3, running: 0 } },
  ])
  expect(await api.engine.jobCounts()).toContainEqual({ queue: 'other', type: 'elsewhere', state: 'queued', count: 3 })
  expect((await api.engine.queues()).map(({ name }) => name)).toEqual(['default', 'fast', 'later', 'other'])
})

test('assignees with their jobs by state', async () => {
  await api.engine.setAssignee('ann', 'active')
  await api.engine.setAssignee('bob', 'paused')
  const [first] = await api.engine.enqueueMany(
    ['ann', 'ann', 'ann', 'bob'].map((assigneeId) => ({ type: 'elsewhere', assigneeId })),
  )
  await api.engine.archiveJob(first!.id)
  const { assignees } = await api.ask('{ assignees { nodes { id status counts { total open queued } } } }')
  expect(assignees.nodes).toEqual([
    { id: 'AS_ann', status: 'ACTIVE', counts: { total: 2, open: 2, queued: 2 } },
    { id: 'AS_bob', status: 'PAUSED', counts: { total: 1, open: 1, queued: 1 } },
  ])
  const page = await api.engine.assignees({ statuses: ['paused'], first: 1 })
  expect(page.edges.map(({ node }) => node.id)).toEqual(['bob'])
  const list = await api.engine.listJobs({ filter: { assigneeIds: ['AS_ann'] }, first: 1 })
  expect(list).toMatchObject({ edges: [{ node: { assigneeId: 'ann', state: 'queued' } }], hasNextPage: true })
})

test('the bulk verbs answer with typed errors for a filter or a limit that will not do', async () => {
  const BULK = `mutation ($input: BulkJobsInput!) { cancelJobs(input: $input) {
    ... on BulkJobsSuccess { dryRun matched changed cancelledDescendants sample { id state cancelReason } }
    ... on Error { code } ... on ValidationError { issues { path message } } } }`
  const refused = await api.ask(BULK, { input: { filter: {} } })
  expect(refused.cancelJobs).toEqual({
    code: 'VALIDATION',
    issues: [{ path: ['filter'], message: 'must say which jobs: an empty one is refused' }],
  })
  const limit = await api.ask(BULK, { input: { filter: { roots: true }, limit: 0 } })
  expect(limit.cancelJobs).toMatchObject({ issues: [{ path: ['limit'] }] })
  const [handle] = await api.engine.enqueueMany([{ type: 'unwanted' }])
  const done = await api.ask(BULK, { input: { filter: { types: ['unwanted'] }, reason: 'INC-7' } })
  expect(done.cancelJobs).toEqual({
    dryRun: false,
    matched: 1,
    changed: 1,
    cancelledDescendants: 0,
    sample: [{ id: `JB_${handle!.id}`, state: 'CANCELLED', cancelReason: 'INC-7' }],
  })
})

test('when its handler has ended, nobody runs it', async () => {
  gate.open()
  await until(
    async () => {
      const { jobs } = await api.ask('{ jobs(filter: { types: ["held"] }) { nodes { state worker { id } } } }')
      return jobs.nodes.every(
        (job: { state: string; worker: unknown }) => job.state === 'COMPLETED' && job.worker === null,
      )
    },
    { what: 'the job to end' },
  )
})
