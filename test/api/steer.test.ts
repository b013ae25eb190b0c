import { afterAll, beforeAll, expect, test } from 'vitest'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { addWorker } from '../support/verbs.ts'
import { type Api, startApi } from './api.ts'

let api: Api
beforeAll(async () => {
  api = await startApi()
})
afterAll(() => api.stop())

const NOBODY = 'JB_01890000-0000-7000-8000-00000000ffff'

/** A verb on one job, with all that its union may answer. */
function verb(name: string, success: string) {
  const Name = name.charAt(0).toUpperCase() + name.slice(1)
  return async (id: string, reason?: string) => {
    const data = await api.ask(
      `mutation ($input: ${Name}Input!) {
        ${name}(input: $input) {
          __typename
          ... on ${Name}Success { ${success} }
          ... on NotFoundError { id }
          ${name === 'deleteJob' ? '' : '... on InvalidStateError { job { id state } }'}
          ... on Error { code message }
        }
      }`,
      { input: { id, ...(reason !== undefined && { reason }) } },
    )
    return data[name]
  }
}

const deleteJob = verb('deleteJob', 'deletedId cancelledDescendants')
const cancelJob = verb('cancelJob', 'job { id state cancelReason cancelCode } cancelledDescendants')
const pauseJob = verb('pauseJob', 'job { state }')
const resumeJob = verb('resumeJob', 'job { state }')
const archiveJob = verb('archiveJob', 'job { state archivedAt cancelCode }')
const unarchiveJob = verb('unarchiveJob', 'job { archivedAt }')

const NEW_TREE = { type: 'p', children: [{ type: 'c' }, { type: 'p', children: [{ type: 'c' }] }] }

async function enqueue(job = NEW_TREE as { type: string }): Promise<string> {
  const [handle] = await api.engine.enqueueMany([job])
  return `JB_${handle!.id}`
}

/** The newest event of a job. */
async function lastEvent(id: string) {
  const data = await api.ask(
    'query ($id: ID!) { events(filter: { jobIds: [$id] }, first: 100) { events { kind to actor reason } } }',
    { id },
  )
  return data.events.events.at(-1)
}

test('deleteJob removes the row, cancels the descendants, and says who and why', async () => {
  const id = await enqueue()
  const { jobTree } = await api.ask('query ($id: ID!) { jobTree(id: $id) { nodes { nodes { id } } } }', { id })
  expect(await deleteJob(id, 'INC-1')).toEqual({
    __typename: 'DeleteJobSuccess',
    deletedId: id,
    cancelledDescendants: 3,
  })
  expect(await lastEvent(id)).toEqual({ kind: 'DELETED', to: null, actor: 'anonymous', reason: 'INC-1' })
  const ids = (jobTree.nodes.nodes as { id: string }[]).map((node) => node.id).filter((other) => other !== id)
  const { nodes } = await api.ask(
    'query ($ids: [ID!]!) { nodes(ids: $ids) { ... on Job { state cancelReason cancelCode } } }',
    { ids },
  )
  expect(nodes).toEqual(
    ids.map(() => ({ state: 'CANCELLED', cancelReason: 'parent job deleted', cancelCode: 'PARENT_DELETED' })),
  )
  expect(await deleteJob(id)).toMatchObject({ __typename: 'NotFoundError', code: 'NOT_FOUND', id })
})

test('cancelJob cancels the job with its descendants; again, it is refused with the job as it is', async () => {
  const id = await enqueue()
  expect(await cancelJob(id, 'not needed')).toEqual({
    __typename: 'CancelJobSuccess',
    job: { id, state: 'CANCELLED', cancelReason: 'not needed', cancelCode: 'REQUESTED' },
    cancelledDescendants: 3,
  })
  expect(await cancelJob(id)).toMatchObject({
    __typename: 'InvalidStateError',
    code: 'INVALID_STATE',
    job: { id, state: 'CANCELLED' },
  })
  const bare = NOBODY.slice(3)
  expect(await cancelJob(bare)).toMatchObject({ __typename: 'NotFoundError', id: bare })
})

test('pause, resume, archive and unarchive answer with the job, or with what forbids it', async () => {
  const id = await enqueue({ type: 'alone' })
  expect(await pauseJob(id)).toMatchObject({ job: { state: 'PAUSED' } })
  expect(await resumeJob(id, 'go on')).toMatchObject({ job: { state: 'QUEUED' } })
  expect(await lastEvent(id)).toMatchObject({ kind: 'MOVED', to: 'QUEUED', actor: 'anonymous', reason: 'go on' })
  expect(await resumeJob(id)).toMatchObject({ __typename: 'InvalidStateError', job: { state: 'QUEUED' } })
  expect(await unarchiveJob(id)).toMatchObject({ __typename: 'InvalidStateError' })
  expect(await archiveJob(id)).toMatchObject({
    job: { state: 'CANCELLED', cancelCode: 'ARCHIVED', archivedAt: expect.any(String) },
  })
  expect(await pauseJob(id)).toMatchObject({ __typename: 'InvalidStateError', job: { state: 'CANCELLED' } })
  expect(await unarchiveJob(id)).toMatchObject({ job: { archivedAt: null } })
  for (const missing of [pauseJob, resumeJob, archiveJob, unarchiveJob]) {
    expect(await missing(NOBODY)).toMatchObject({ __typename: 'NotFoundError', id: NOBODY })
  }
})

test('pause and resume take a whole tree on demand', async () => {
  const id = await enqueue()
  const states = async () => {
    const { jobTree } = await api.ask('query ($id: ID!) { jobTree(id: $id) { counts { queued waiting paused } } }', {
      id,
    })
    return jobTree.counts
  }
  const set = async (name: string, descendants: boolean) => {
    const Name = name.charAt(0).toUpperCase() + name.slice(1)
    await api.ask(
      `mutation ($input: ${Name}Input!) { ${name}(input: $input) { ... on ${Name}Success { job { id } } ... on Error { message } } }`,
      { input: { id, descendants } },
    )
  }
  expect(await states()).toEqual({ queued: 2, waiting: 2, paused: 0 })
  await set('pauseJob', true)
  expect(await states()).toEqual({ queued: 0, waiting: 0, paused: 4 })
  await set('resumeJob', false)
  expect(await states()).toEqual({ queued: 0, waiting: 1, paused: 3 })
  await set('resumeJob', true)
  expect(await states()).toEqual({ queued: 2, waiting: 2, paused: 0 })
})

test('retryJob opens a job again, with its descendants on demand, or says what forbids it', async () => {
  const RETRY = `mutation ($input: RetryJobInput!) {
    retryJob(input: $input) {
      __typename
      ... on RetryJobSuccess { job { id state } reopenedDescendants }
      ... on NotFoundError { id }
      ... on InvalidStateError { job { id state } }
      ... on ParentGoneError { parent { id state } }
      ... on Error { code message }
    }
  }`
  const retry = async (input: Record<string, unknown>) => (await api.ask(RETRY, { input })).retryJob
  const id = await enqueue()
  expect(await retry({ id })).toMatchObject({ __typename: 'InvalidStateError', job: { id, state: 'WAITING' } })
  await cancelJob(id)
  const { job } = await api.ask('query ($id: ID!) { job(id: $id) { children { nodes { id } } } }', { id })
  const child = job.children.nodes[0].id as string
  expect(await retry({ id: child })).toMatchObject({
    __typename: 'ParentGoneError',
    code: 'PARENT_GONE',
    parent: { id, state: 'CANCELLED' },
  })
  expect(await retry({ id, descendants: true, reason: 'by mistake' })).toMatchObject({
    job: { id, state: 'WAITING' },
    reopenedDescendants: 3,
  })
  expect(await lastEvent(id)).toMatchObject({ to: 'WAITING', actor: 'anonymous', reason: 'by mistake' })
  expect(await retry({ id: NOBODY })).toMatchObject({ __typename: 'NotFoundError', id: NOBODY })

  const done = await enqueue({ type: 'done' })
  await api.test.pool.query(`update coppice.job set state = 'completed' where id = $1`, [done.slice(3)])
  expect(await retry({ id: done })).toMatchObject({ __typename: 'InvalidStateError', job: { state: 'COMPLETED' } })
  expect(await retry({ id: done, rerun: true })).toMatchObject({ job: { state: 'QUEUED' }, reopenedDescendants: 0 })
})

test('retryJob reopens failed descendants only where it is told to', async () => {
  const workerId = await addWorker(api.test)
  const id = await enqueue({ type: 'keeps', children: [{ type: 'fails' }] } as never)
  const fail = async (type: string) => {
    const request = { workerId, types: [type], queues: null, limit: 1 }
    const [job] = await claimJobs(api.engine.database, request)
    const outcome = { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } } as const
    await settle(api.engine.database, [{ job: job!, outcome }], { actor: 'test' })
  }
  const retry = async (descendants: boolean) => {
    const data = await api.ask(
      `mutation ($input: RetryJobInput!) {
        retryJob(input: $input) { ... on RetryJobSuccess { job { state phase } reopenedDescendants } } }`,
      { input: { id, descendants } },
    )
    return data.retryJob
  }
  await fail('fails')
  await fail('keeps')
  expect(await retry(false)).toEqual({ job: { state: 'QUEUED', phase: 'AGGREGATE' }, reopenedDescendants: 0 })
  await fail('keeps')
  expect(await retry(true)).toEqual({ job: { state: 'WAITING', phase: 'AGGREGATE' }, reopenedDescendants: 1 })
  await fail('fails')
  const { job } = await api.ask('query ($id: ID!) { job(id: $id) { state wave } }', { id })
  expect(job).toEqual({ state: 'QUEUED', wave: 2 })
})

test('setAssignee makes an assignee, and its activation wakes the parents it held back', async () => {
  const SET = `mutation ($id: ID!, $status: AssigneeStatus!) {
    setAssignee(input: { id: $id, status: $status }) {
      __typename
      ... on SetAssigneeSuccess { woken assignee { id status updatedAt } }
      ... on ValidationError { issues { path message } }
    }
  }`
  const set = async (id: string, status: string) => (await api.ask(SET, { id, status })).setAssignee
  expect(await set('ann', 'PAUSED')).toMatchObject({ woken: 0, assignee: { id: 'AS_ann', status: 'PAUSED' } })
  const [parent] = await api.engine.enqueueMany([{ type: 'p', assigneeId: 'ann', children: [] }])
  const state = async () =>
    (await api.ask('query ($id: ID!) { job(id: $id) { state phase wave } }', { id: parent!.id })).job
  expect(await state()).toEqual({ state: 'WAITING', phase: 'INGEST', wave: 0 })
  expect(await set('AS_ann', 'ACTIVE')).toMatchObject({ woken: 1, assignee: { status: 'ACTIVE' } })
  expect(await state()).toEqual({ state: 'QUEUED', phase: 'AGGREGATE', wave: 1 })
  expect(await set('x'.repeat(201), 'ACTIVE')).toMatchObject({
    __typename: 'ValidationError',
    issues: [{ path: ['id'] }],
  })
})

test('a document with several mutations answers each with the state of its own moment', async () => {
  const id = await enqueue({ type: 'serial' })
  const data = await api.ask(
    `mutation ($id: ID!) {
      one: pauseJob(input: { id: $id }) { ... on PauseJobSuccess { job { state root { state } } } }
      two: resumeJob(input: { id: $id }) { ... on ResumeJobSuccess { job { state root { state } } } }
      three: cancelJob(input: { id: $id }) { ... on CancelJobSuccess { job { state root { state } } } }
    }`,
    { id },
  )
  expect(data).toEqual({
    one: { job: { state: 'PAUSED', root: { state: 'PAUSED' } } },
    two: { job: { state: 'QUEUED', root: { state: 'QUEUED' } } },
    three: { job: { state: 'CANCELLED', root: { state: 'CANCELLED' } } },
  })
})

test('cancelling a running job is known at once', async () => {
  const workerId = await addWorker(api.test)
  const id = await enqueue({ type: 'runs' })
  await claimJobs(api.engine.database, { workerId, types: ['runs'], queues: null, limit: 1 })
  expect(await cancelJob(id)).toMatchObject({ job: { state: 'CANCELLED' }, cancelledDescendants: 0 })
})
