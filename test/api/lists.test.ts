import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Api, startApi } from './api.ts'

let api: Api
beforeAll(async () => {
  api = await startApi()
})
afterAll(() => api.stop())

test('each filter of jobs leaves what it should', async () => {
  const tag = randomUUID()
  const [root, other] = await api.engine.enqueueMany([
    {
      type: 'filter-a',
      queue: 'fast',
      key: `${tag}-100%_\\`,
      metadata: { tag, list: [1, 2], nested: { a: 1 } },
      children: [{ type: 'filter-c', metadata: { tag } }],
    },
    { type: 'filter-b', assigneeId: 'ann', metadata: { tag }, runAt: new Date('2099-01-01T00:00:00Z') },
  ])
  const rootId = `JB_${root!.id}`
  const otherId = `JB_${other!.id}`
  const { job } = await api.ask('query ($id: ID!) { job(id: $id) { children { nodes { id } } } }', { id: rootId })
  const childId = job.children.nodes[0].id as string
  await api.engine.archiveJob(other!.id)
  await api.test.pool.query(
    `update coppice.job set error = 'Connection refused', error_code = 'NETWORK' where id = $1`,
    [root!.id],
  )
  const list = async (filter: Record<string, unknown>) => {
    const common = { metadata: { tag } }
    const { jobs } = await api.ask('query ($filter: JobFilter) { jobs(filter: $filter) { nodes { id } } }', {
      filter: { ...common, ...filter },
    })
    return new Set((jobs.nodes as { id: string }[]).map((node) => node.id))
  }
  const both = new Set([rootId, childId])
  expect(await list({})).toEqual(both)
  expect(await list({ archived: true })).toEqual(new Set([otherId]))
  expect(await list({ archived: null })).toEqual(new Set([rootId, childId, otherId]))
  expect(await list({ ids: [childId, otherId] })).toEqual(new Set([childId]))
  expect(await list({ ids: [] })).toEqual(new Set())
  expect(await list({ treeId: rootId })).toEqual(both)
  expect(await list({ treeId: childId })).toEqual(new Set())
  expect(await list({ parentId: rootId })).toEqual(new Set([childId]))
  expect(await list({ parentWave: 1 })).toEqual(new Set([childId]))
  expect(await list({ roots: true })).toEqual(new Set([rootId]))
  expect(await list({ roots: false })).toEqual(new Set([childId]))
  expect(await list({ states: ['WAITING'] })).toEqual(new Set([rootId]))
  expect(await list({ types: ['filter-c', 'nothing'] })).toEqual(new Set([childId]))
  expect(await list({ queues: ['fast'] })).toEqual(new Set([rootId]))
  expect(await list({ key: `${tag}-100%_\\` })).toEqual(new Set([rootId]))
  expect(await list({ assigneeIds: ['AS_ann'], archived: null })).toEqual(new Set([otherId]))
  expect(await list({ errorCodes: ['NETWORK'] })).toEqual(new Set([rootId]))
  expect(await list({ metadata: { tag, nested: { a: 1 }, list: [2] } })).toEqual(new Set([rootId]))
  expect(await list({ search: 'ER-C' })).toEqual(new Set([childId]))
  expect(await list({ search: '100%_\\' })).toEqual(new Set([rootId]))
  expect(await list({ search: '100__' })).toEqual(new Set())
  expect(await list({ search: 'refused' })).toEqual(new Set([rootId]))
  expect(await list({ search: childId })).toEqual(new Set([childId]))
  expect(await list({ search: childId.slice(0, -6) })).toContain(childId)
  expect(await list({ createdAfter: '2020-01-01T00:00:00Z', createdBefore: '2098-01-01T00:00:00Z' })).toEqual(both)
  expect(await list({ createdAfter: '2098-01-01T00:00:00Z' })).toEqual(new Set())
  expect(await list({ createdBefore: '2020-01-01T00:00:00+05:00' })).toEqual(new Set())
})

test('a tree of a deleted root is still found, by its root and by any job of it', async () => {
  const [root] = await api.engine.enqueueMany([{ type: 'gone', children: [{ type: 'kept', key: 'k' }] }])
  const rootId = `JB_${root!.id}`
  const before = await api.ask('query ($id: ID!) { jobTree(id: $id) { nodes { nodes { id } } } }', { id: rootId })
  const childId = before.jobTree.nodes.nodes[1].id as string
  await api.engine.deleteJob(root!.id)
  for (const id of [rootId, childId]) {
    const { jobTree } = await api.ask(
      `query ($id: ID!) { jobTree(id: $id) { root { id } counts { total cancelled } nodes { nodes { id parentId parent { id } root { id } cancelReason cancelCode } } } }`,
      { id },
    )
    expect(jobTree).toEqual({
      root: null,
      counts: { total: 1, cancelled: 1 },
      nodes: {
        nodes: [
          {
            id: childId,
            parentId: rootId,
            parent: null,
            root: null,
            cancelReason: 'parent job deleted',
            cancelCode: 'PARENT_DELETED',
          },
        ],
      },
    })
  }
})

test('archived jobs are out of trees and counts', async () => {
  const [root] = await api.engine.enqueueMany([{ type: 'tidy', children: [{ type: 'x' }, { type: 'y' }] }])
  const QUERY = `query ($id: ID!) { jobTree(id: $id) { counts { total } nodes { nodes { type } } }
    job(id: $id) { childCounts { total } children { nodes { type } } all: children(filter: { archived: null }) { nodes { type } } } }`
  const first = await api.ask(QUERY, { id: root!.id })
  expect(first.jobTree.counts.total).toBe(3)
  const { jobs } = await api.ask(
    'query ($id: ID!) { jobs(filter: { parentId: $id, types: ["x"] }) { nodes { id } } }',
    {
      id: root!.id,
    },
  )
  await api.engine.archiveJob(jobs.nodes[0].id)
  const second = await api.ask(QUERY, { id: root!.id })
  expect(second.jobTree).toEqual({ counts: { total: 2 }, nodes: { nodes: [{ type: 'tidy' }, { type: 'y' }] } })
  expect(second.job.childCounts).toEqual({ total: 1 })
  expect(second.job.children.nodes).toEqual([{ type: 'y' }])
  expect(new Set(second.job.all.nodes.map((node: { type: string }) => node.type))).toEqual(new Set(['x', 'y']))
})
