import os from 'node:os'
import { expect, test } from 'vitest'
import { defineJob, NotFoundError, ValidationError } from '../../src/index.ts'
import { createGate } from '../support/gate.ts'
import { until } from '../support/until.ts'
import { named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()

test('an engine explains what its own worker does, from the first claim to the end', async () => {
  const gate = createGate()
  const slow = defineJob({ type: named('slow') }, { timeouts: { ingest: '5m' }, run: () => gate.opened })
  const parent = defineJob(
    { type: named('parent') },
    {
      async ingest(ctx) {
        await ctx.spawn([{ type: slow.type, key: 'the one' }])
      },
      aggregate: () => 'done',
    },
  )
  const { engine } = await engines.engineWith([slow, parent])
  const handle = await engine.enqueue(parent.with())
  const explanation = await until(async () => {
    const [first] = await engine.explain(`JB_${handle.id}`)
    const leaves = first!.facts.leaves as { reason: string }[] | undefined
    return leaves?.[0]?.reason === 'running' && first
  })
  expect(explanation).toMatchObject({ reason: 'open_children', count: 1 })
  expect(explanation.sentence).toContain(`(${slow.type} the one), which has been running for`)
  expect(explanation.sentence).toContain(` on ${os.hostname()} (worker WK_`)
  const [running] = await engine.explain(explanation.jobs[0]!)
  expect(running).toMatchObject({
    reason: 'running',
    facts: { workerLost: false, pid: process.pid, limitMs: 300_000, limitFrom: 'job' },
  })
  gate.open()
  await engine.waitFor(handle, { timeoutMs: 30_000 })
  expect((await engine.explain(handle.id))[0]).toMatchObject({ reason: 'finished', facts: { state: 'completed' } })
})

test('a job that is not there cannot be explained', async () => {
  const { engine } = await engines.engineWith([], { start: false })
  await expect(engine.explain('JB_00000000-0000-4000-8000-000000000000')).rejects.toBeInstanceOf(NotFoundError)
  await expect(engine.explain('nonsense')).rejects.toBeInstanceOf(ValidationError)
})

test('the dry runs of an engine list what is withheld, and nothing that goes on by itself', async () => {
  const child = defineJob({ type: named('child') }, { async run() {} })
  const type = named('held')
  const { engine } = await engines.engineWith([child])
  const assigneeId = named('ada')
  await engine.setAssignee(assigneeId, 'paused')
  const job = { type, assigneeId, children: [{ type: child.type }] }
  const ids = (await engine.enqueueMany([job, job, job])).map(({ id }) => id)
  const page = await until(async () => {
    const listed = await engine.stuckParents()
    return listed.edges.length === 3 && listed
  })
  expect(page.edges.map(({ node }) => node.id).sort()).toEqual([...ids].sort())
  expect(page).toMatchObject({ hasNextPage: false, hasPreviousPage: false })
  const [first] = (await engine.stuckParents({ first: 1 })).edges
  expect(first!.node.id).toBe(page.edges[0]!.node.id)
  expect((await engine.stuckParents({ first: 2, after: first!.cursor })).edges).toHaveLength(2)
  await expect(engine.stuckParents({ first: 1000 })).rejects.toMatchObject({ code: 'BAD_REQUEST' })
  expect(await engine.orphans({ last: 5 })).toEqual({ edges: [], hasNextPage: false, hasPreviousPage: false })
  await engine.setAssignee(assigneeId, 'active')
  expect((await engine.stuckParents()).edges).toEqual([])
})
