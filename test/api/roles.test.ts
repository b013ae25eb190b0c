import { graphql } from 'graphql'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Role } from '../../src/resolvers/viewer.ts'
import { schema } from '../../src/schema/index.ts'
import { createErrorMask } from '../../src/server/error-mask.ts'
import { type Api, silent, startApi } from './api.ts'

// What a role may do, asked of the schema itself; auth.test.ts has how callers come by their roles.

let api: Api
beforeAll(async () => {
  api = await startApi()
})
afterAll(() => api.stop())

const mask = createErrorMask(silent())

async function as(role: Role, source: string, variableValues: Record<string, unknown> = {}) {
  const closing = new AbortController().signal
  const contextValue = { engine: api.engine, viewer: { name: `a ${role}`, role }, closing }
  const { data, errors } = await graphql({ schema, source, variableValues, contextValue })
  return { data: JSON.parse(JSON.stringify(data ?? null)), codes: errors?.map((error) => mask(error).extensions.code) }
}

const VERBS = (id: string): [string, Role][] => [
  ['mutation { enqueueJob(input: { type: "a" }) { __typename } }', 'operator'],
  ['mutation { enqueueJobs(input: { jobs: [] }) { __typename } }', 'operator'],
  [`mutation { spawnChildren(input: { parentId: "${id}", children: [] }) { __typename } }`, 'operator'],
  [`mutation { cancelJob(input: { id: "${id}" }) { __typename } }`, 'operator'],
  [`mutation { pauseJob(input: { id: "${id}" }) { __typename } }`, 'operator'],
  [`mutation { resumeJob(input: { id: "${id}" }) { __typename } }`, 'operator'],
  [`mutation { retryJob(input: { id: "${id}" }) { __typename } }`, 'operator'],
  [`mutation { rewakeParent(input: { id: "${id}" }) { __typename } }`, 'operator'],
  [`mutation { rewakeParent(input: { id: "${id}", force: true }) { __typename } }`, 'admin'],
  [`mutation { archiveJob(input: { id: "${id}" }) { __typename } }`, 'operator'],
  [`mutation { unarchiveJob(input: { id: "${id}" }) { __typename } }`, 'operator'],
  [`mutation { deleteJob(input: { id: "${id}" }) { __typename } }`, 'admin'],
  ['mutation { setAssignee(input: { id: "ann", status: ACTIVE }) { __typename } }', 'admin'],
  ['mutation { cancelJobs(input: { filter: { types: ["none"] }, dryRun: true }) { __typename } }', 'admin'],
  ['mutation { retryJobs(input: { filter: { types: ["none"] }, dryRun: true }) { __typename } }', 'admin'],
  ['mutation { archiveJobs(input: { filter: { types: ["none"] }, dryRun: true }) { __typename } }', 'admin'],
  ['mutation { deleteJobs(input: { filter: { types: ["none"] }, dryRun: true }) { __typename } }', 'admin'],
]

test('each verb needs its role, and a refused one does nothing', async () => {
  const fields = Object.keys(schema.getMutationType()!.getFields())
  const [handle] = await api.engine.enqueueMany([{ type: 'roles' }])
  const verbs = VERBS(handle!.id)
  const named = new Set(verbs.map(([source]) => /\{ (\w+)/.exec(source)![1]))
  expect([...named].sort()).toEqual(fields.sort())
  const count = async () => (await api.test.pool.query('select count(*)::int as n from coppice.job_event')).rows[0].n
  const before = await count()
  for (const [source] of verbs) expect((await as('viewer', source)).codes, source).toEqual(['FORBIDDEN'])
  for (const [source, role] of verbs.filter(([, needed]) => needed === 'admin')) {
    expect((await as('operator', source)).codes, `${role}: ${source}`).toEqual(['FORBIDDEN'])
  }
  expect(await count()).toBe(before)
  for (const [source, role] of verbs) expect((await as(role, source)).codes, source).toBeUndefined()
})

test('the actor of an event is who asked', async () => {
  const { data } = await as(
    'operator',
    'mutation { enqueueJob(input: { type: "named" }) { ... on EnqueueJobSuccess { job { events { nodes { actor } } } } } }',
  )
  expect(data.enqueueJob.job.events.nodes).toEqual([{ actor: 'a operator' }])
})

test('stacks are for those who steer', async () => {
  const [handle] = await api.engine.enqueueMany([{ type: 'stacks' }])
  await api.test.pool.query(
    `with failed as (
       update coppice.job set error = 'no', error_code = 'UNKNOWN', error_stack = 'the stack', version = 3 where id = $1
       returning *)
     insert into coppice.job_event
       (kind, job_id, tree_id, type, "from", "to", phase, wave, attempt, version, actor, detail)
     select 'moved', id, tree_id, type, f, t, phase, wave, 1, v, 'WK_01890000-0000-7000-8000-000000000000', d::jsonb
     from failed, (values ('queued', 'running', 2, null),
       ('running', 'failed', 3, '{"error":{"message":"no","code":"UNKNOWN","stack":"the stack"}}')) as m(f, t, v, d)`,
    [handle!.id],
  )
  const QUERY = `query ($id: ID!) {
    job(id: $id) { error errorStack attempts { error errorStack } events(last: 1) { nodes { detail } } } }`
  const operator = await as('operator', QUERY, { id: handle!.id })
  expect(operator.data.job).toEqual({
    error: 'no',
    errorStack: 'the stack',
    attempts: [{ error: 'no', errorStack: 'the stack' }],
    events: { nodes: [{ detail: { error: { message: 'no', code: 'UNKNOWN', stack: 'the stack' } } }] },
  })
  const viewer = await as('viewer', QUERY, { id: handle!.id })
  expect(viewer.data.job).toEqual({
    error: 'no',
    errorStack: null,
    attempts: [{ error: 'no', errorStack: null }],
    events: { nodes: [{ detail: { error: { message: 'no', code: 'UNKNOWN' } } }] },
  })
})
