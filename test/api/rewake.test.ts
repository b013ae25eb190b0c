import { afterAll, beforeAll, expect, test } from 'vitest'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import type { Outcome } from '../../src/engine/job.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { until } from '../support/until.ts'
import { addWorker } from '../support/verbs.ts'
import { type Api, startApi } from './api.ts'

let api: Api
let workerId: string
beforeAll(async () => {
  api = await startApi()
  workerId = await addWorker(api.test)
})
afterAll(() => api.stop())

const REWAKE = `mutation Rewake($id: ID!, $force: Boolean! = false) {
  rewakeParent(input: { id: $id, force: $force, reason: "INC-4711" }) {
    __typename
    ... on RewakeParentSuccess { job { id state phase wave } receipt { operationId source forced wave } }
    ... on ChildrenOpenError { parent { id } openChildren children { id type state } }
    ... on AlreadyDeliveredError { receipt { source at deliveredAttempt } }
    ... on AssigneeNotActiveError { assignee { id status } }
    ... on InvalidStateError { job { id state } }
    ... on NotFoundError { id }
    ... on Error { code message }
  }
}`
const rewake = async (id: string, force?: boolean) =>
  (await api.ask(REWAKE, { id, ...(force !== undefined && { force }) })).rewakeParent

async function claim(type: string) {
  return claimJobs(api.engine.database, { workerId, types: [type], queues: null, limit: 100 })
}

async function end(type: string, outcome: Outcome = { kind: 'completed', result: null }) {
  const items = (await claim(type)).map((job) => ({ job, outcome }))
  await settle(api.engine.database, items, { actor: 'test' })
}

async function enqueue(more: object = {}) {
  const [handle] = await api.engine.enqueueMany([{ type: 'p', children: [{ type: 'c' }, { type: 'd' }], ...more }])
  return `JB_${handle!.id}`
}

test('refuses with what is open, wakes when forced, and then says that it is on its way', async () => {
  const id = await enqueue()
  await end('c')
  expect(await rewake(id)).toEqual({
    __typename: 'ChildrenOpenError',
    code: 'CHILDREN_OPEN',
    message: expect.stringContaining(`${id} has 1 open child: JB_`),
    parent: { id },
    openChildren: 1,
    children: [{ id: expect.stringMatching(/^JB_/), type: 'd', state: 'QUEUED' }],
  })
  expect(await rewake(id, true)).toMatchObject({
    __typename: 'RewakeParentSuccess',
    job: { id, state: 'QUEUED', phase: 'AGGREGATE', wave: 1 },
    receipt: {
      operationId: expect.stringMatching(/^job_children_completed:/),
      source: 'MANUAL',
      forced: true,
      wave: 1,
    },
  })
  expect(await rewake(id)).toMatchObject({
    __typename: 'AlreadyDeliveredError',
    code: 'ALREADY_DELIVERED',
    receipt: { source: 'MANUAL', deliveredAttempt: null },
  })
  await end('p', { kind: 'failed', error: { message: 'no', code: 'UNKNOWN' } })
  expect(await rewake(id)).toMatchObject({ __typename: 'InvalidStateError', job: { id, state: 'FAILED' } })
  expect(await rewake(id, true)).toMatchObject({
    job: { state: 'QUEUED', wave: 2 },
    receipt: { forced: true, wave: 2 },
  })
  const { events } = await api.ask(
    'query ($id: ID!) { events(filter: { jobIds: [$id] }, first: 100) { events { to actor reason } } }',
    { id },
  )
  expect(events.events.slice(-2)).toEqual([
    { to: 'WAITING', actor: 'anonymous', reason: 'INC-4711' },
    { to: 'QUEUED', actor: 'anonymous', reason: 'INC-4711' },
  ])
  await end('p')
})

test('tells the assignee that keeps it, or that there is none', async () => {
  await api.engine.setAssignee('ann', 'paused')
  for (const [assigneeId, assignee] of [
    ['ann', { id: 'AS_ann', status: 'PAUSED' }],
    ['nobody', null],
  ] as const) {
    const id = await enqueue({ assigneeId })
    expect(await rewake(id, true)).toMatchObject({
      __typename: 'AssigneeNotActiveError',
      code: 'ASSIGNEE_NOT_ACTIVE',
      assignee,
    })
  }
})

test('a job that is not there is answered with the id as it was given', async () => {
  const id = '01890000-0000-7000-8000-00000000ffff'
  expect(await rewake(id)).toMatchObject({ __typename: 'NotFoundError', code: 'NOT_FOUND', id })
})

test('a wake by hand is counted, and told to whoever waits', async () => {
  const before = await wakesByHand()
  const id = await enqueue({ type: 'counted' })
  await end('c')
  await api.engine.rewakeParent(id, { force: true })
  expect(await wakesByHand()).toBe(before + 1)
  await until(async () => (await claim('counted')).length === 1)
})

async function wakesByHand(): Promise<number> {
  const text = await api.engine.metrics.metrics()
  return Number(/^coppice_parent_wake_emitted_total\{source="manual"\} (\d+)$/m.exec(text)?.[1] ?? 0)
}
