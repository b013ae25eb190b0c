import { readFile } from 'node:fs/promises'
import { type DocumentNode, Kind, parse, print, separateOperations, validate } from 'graphql'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { z } from 'zod'
import { defineJob, PermanentError } from '../../src/index.ts'
import { schema } from '../../src/schema/index.ts'
import { until } from '../support/until.ts'
import { type Api, startApi } from './api.ts'

// The operations of operations.graphql, each against a real server.

const file = await readFile(new URL('operations.graphql', import.meta.url), 'utf8')
const operations: Record<string, DocumentNode> = separateOperations(parse(file))
const textOf = (name: string) => print(operations[name]!)

const digestFile = defineJob(
  { type: 'digest-file', payload: z.object({ path: z.string() }) },
  {
    run({ payload }) {
      if (payload.path === 'nowhere') throw new PermanentError('no such file', { code: 'NOT_FOUND' })
      return { sha256: payload.path }
    },
  },
)
const report = defineJob({ type: 'report' }, { ingest: () => {}, aggregate: ({ childCounts }) => childCounts() })
const digestFolder = defineJob(
  { type: 'digest-folder' },
  {
    ingest: (ctx) => ctx.spawn([digestFile.with({ path: 'a' }), digestFile.with({ path: 'nowhere' })]),
    aggregate: ({ childCounts }) => childCounts(),
  },
)

let api: Api
beforeAll(async () => {
  api = await startApi({ jobs: [digestFile, report, digestFolder] })
})
afterAll(() => api.stop())

test('all are valid, and tested below', () => {
  for (const [name, document] of Object.entries(operations)) {
    expect(validate(schema, document), name).toEqual([])
    expect(document.definitions.filter(({ kind }) => kind === Kind.OPERATION_DEFINITION)).toHaveLength(1)
  }
  expect(Object.keys(operations)).toEqual([
    'TreeView',
    'TreeLive',
    'UnfoldFailures',
    'StartDigest',
    'UntilDone',
    'RootsChanged',
    'WhatIsStuck',
    'Rewake',
    'CleanUp',
    'PostMortem',
    'TryATree',
    'LookAround',
  ])
})

/** A folder's digest that has come to its end. */
async function digested(): Promise<string> {
  const handle = await api.engine.enqueue(digestFolder.with())
  expect(await api.engine.waitFor(handle, { timeoutMs: 30_000 })).toMatchObject({ state: 'completed' })
  return `JB_${handle.id}`
}

test('StartDigest, then UntilDone and RootsChanged follow it', async () => {
  const roots = await api.stream(textOf('RootsChanged'))
  const frames = () => roots.next().map(({ data }) => data.jobEvents)
  await until(() => frames().length > 0, { what: 'the first frame' })
  expect(frames()[0]).toMatchObject({ events: [], caughtUp: true, ended: null })
  const { enqueueJob } = await api.ask(textOf('StartDigest'), { payload: { path: '.' }, key: 'once' })
  expect(enqueueJob).toMatchObject({
    __typename: 'EnqueueJobSuccess',
    deduplicated: false,
    job: { type: 'digest-folder' },
  })
  const again = await api.ask(textOf('StartDigest'), { payload: { path: '.' }, key: 'once' })
  expect(again.enqueueJob).toMatchObject({ deduplicated: true, job: { id: enqueueJob.job.id } })

  const done = await api.stream(textOf('UntilDone'), { id: enqueueJob.job.id })
  await until(() => done.ended, { what: 'the end of the stream' })
  expect(done.next().at(-1).data.job).toMatchObject({
    state: 'COMPLETED',
    result: { total: 2, completed: 1, failed: 1 },
  })

  const events = () => frames().flatMap((frame) => frame.events)
  await until(() => events().at(-1)?.to === 'COMPLETED', { what: 'the event of its end' })
  const seen = events()
  expect(seen[0]).toMatchObject({ kind: 'CREATED', from: null, to: 'QUEUED' })
  for (const event of seen) expect(event.job.id).toBe(enqueueJob.job.id)
})

test('TreeView and UnfoldFailures', async () => {
  const id = await digested()
  const { viewer, jobTree } = await api.ask(textOf('TreeView'), { id })
  expect(viewer).toEqual({ role: 'ADMIN' })
  expect(jobTree).toMatchObject({ counts: { total: 3, open: 0, completed: 2, failed: 1 }, root: { id } })
  expect(jobTree.nodes.nodes.map((node: { depth: number }) => node.depth)).toEqual([0, 1, 1])
  const { nodes } = await api.ask(textOf('UnfoldFailures'), { ids: [id, jobTree.nodes.nodes[1].id] })
  expect(nodes[0].childCounts).toEqual({ total: 2, failed: 1 })
  expect(nodes[0].children.nodes).toMatchObject([{ state: 'FAILED', error: 'no such file', errorCode: 'NOT_FOUND' }])
  expect(nodes[1].children.nodes).toEqual([])
})

test('TreeLive: the tree as it is, then what changes', async () => {
  const id = await digested()
  const tree = await api.stream(textOf('TreeLive'), { id })
  const frames = () => tree.next().map(({ data }) => data.jobTree)
  await until(() => frames().some((frame) => frame.caughtUp), { what: 'the snapshot' })
  expect(frames()[0]).toMatchObject({ reset: true, ended: null })
  expect(
    frames()[0]
      .jobs.map((job: { state: string }) => job.state)
      .sort(),
  ).toEqual(['COMPLETED', 'COMPLETED', 'FAILED'])
  await api.engine.archiveJob(id)
  await until(() => frames().some((frame) => !frame.reset && frame.jobs.length + frame.removed.length > 0), {
    what: 'the change',
  })
})

test('WhatIsStuck', async () => {
  const [parent] = await api.engine.enqueueMany([{ type: 'unknown-parent', children: [{ type: 'unknown-child' }] }])
  const { stats, stuckParents, oldest, orphans, workers } = await api.ask(textOf('WhatIsStuck'))
  expect(stats).toMatchObject({ oldestWaitingAt: expect.any(String), feed: { listening: true }, wakes: { stuck: 0 } })
  expect(stuckParents.nodes).toEqual([])
  expect(orphans.nodes).toEqual([])
  expect(workers).toMatchObject([{ types: expect.arrayContaining(['digest-file', 'digest-folder', 'report']) }])
  const stuck = oldest.nodes.find((node: { id: string }) => node.id === `JB_${parent!.id}`)
  expect(stuck.explain[0]).toMatchObject({ reason: 'OPEN_CHILDREN', count: 1 })
  await api.engine.deleteJob(parent!.id)
})

test('PostMortem', async () => {
  const id = await digested()
  const { job } = await api.ask(textOf('PostMortem'), { id })
  expect(job).toMatchObject({
    id,
    state: 'COMPLETED',
    phase: 'AGGREGATE',
    wave: 1,
    attempt: 2,
    root: { id },
    parent: null,
  })
  expect(job.attempts.map((attempt: { phase: string }) => attempt.phase)).toEqual(['AGGREGATE', 'INGEST'])
  expect(job.events.edges.map(({ node }: { node: { to: string } }) => node.to)).toEqual([
    'QUEUED',
    'RUNNING',
    'WAITING',
    'QUEUED',
    'RUNNING',
    'COMPLETED',
  ])
  expect(job.receipt).toMatchObject({ wave: 1, source: 'EDGE' })
})

test('Rewake: what is open, what was delivered, and by force', async () => {
  const [parent] = await api.engine.enqueueMany([{ type: 'unknown', children: [{ type: 'unknown' }] }])
  const id = `JB_${parent!.id}`
  const refused = await api.ask(textOf('Rewake'), { id })
  expect(refused.rewakeParent).toMatchObject({
    __typename: 'ChildrenOpenError',
    code: 'CHILDREN_OPEN',
    openChildren: 1,
  })
  expect(refused.rewakeParent.children[0].explain[0].sentence).toContain('none that lives knows its type')
  const forced = await api.ask(textOf('Rewake'), { id, force: true })
  expect(forced.rewakeParent).toMatchObject({
    job: { id, state: 'QUEUED' },
    receipt: { source: 'MANUAL', forced: true },
  })
  const again = await api.ask(textOf('Rewake'), { id, force: true })
  expect(again.rewakeParent).toMatchObject({ __typename: 'AlreadyDeliveredError', receipt: { source: 'MANUAL' } })
})

test('CleanUp: first the dry run, then the deed', async () => {
  const [tree] = await api.engine.enqueueMany([
    { type: 'night', children: [{ type: 'crawl' }, { type: 'crawl', children: [{ type: 'page' }] }] },
  ])
  await api.test.pool.query(`update coppice.job set created_at = '2026-11-01Z' where tree_id = $1`, [tree!.id])
  const [failed] = await api.engine.enqueueMany([{ type: 'night' }])
  await api.engine.cancelJob(failed!.id)
  const variables = { tree: `JB_${tree!.id}`, job: `JB_${failed!.id}`, assignee: 'AS_night' }
  const dry = await api.ask(textOf('CleanUp'), variables)
  expect(dry).toMatchObject({
    cancelJobs: {
      dryRun: true,
      matched: 2,
      changed: 2,
      cancelledDescendants: 1,
      sample: [{ type: 'crawl' }, { type: 'crawl' }],
    },
    deletion: { cancelledDescendants: 3 },
  })
  expect(Object.keys(dry)).toEqual(['cancelJobs', 'deletion'])
  const done = await api.ask(textOf('CleanUp'), { ...variables, dryRun: false })
  expect(done).toMatchObject({
    cancelJobs: { dryRun: false, matched: 2, changed: 2, cancelledDescendants: 1 },
    deletion: { cancelledDescendants: 0 },
    retryJob: { job: { state: 'QUEUED' }, reopenedDescendants: 0 },
    setAssignee: { woken: 0, assignee: { status: 'ACTIVE' } },
  })
})

test('TryATree, and LookAround', async () => {
  const { enqueueJob } = await api.ask(textOf('TryATree'))
  expect(enqueueJob).toMatchObject({ deduplicated: false, job: { state: 'WAITING' } })
  expect(enqueueJob.job.children.nodes.map((node: { key: string }) => node.key)).toEqual(['a', 'b', 'c'])
  expect(await api.engine.waitFor(enqueueJob.job.id, { timeoutMs: 30_000 })).toMatchObject({ state: 'completed' })
  await api.engine.setAssignee('resting', 'paused')
  await api.engine.enqueue({ type: 'report', assigneeId: 'resting' })
  const around = await api.ask(textOf('LookAround'))
  expect(around.viewer).toEqual({ name: 'anonymous', role: 'ADMIN' })
  const types = Object.fromEntries(around.jobTypes.map((type: { name: string }) => [type.name, type]))
  expect(types['digest-file']).toMatchObject({
    workers: 1,
    payloadSchema: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
  })
  expect(types.report).toMatchObject({ workers: 1, payloadSchema: null })
  expect(types.report.counts.total).toBeGreaterThanOrEqual(3)
  expect(around.queues[0]).toMatchObject({ name: 'default' })
  expect(around.assignees.nodes).toEqual([{ id: 'AS_resting', status: 'PAUSED', counts: { open: 1 } }])
  for (const { node } of around.jobs.edges) expect(node.type).toBe('digest-folder')
  expect(around.events.events[0]).toMatchObject({ type: 'digest-file', reason: 'no such file' })
})
