import { expect, test } from 'vitest'
import { type ContractJob, defineJob, type JobEvent, type NewJob, PermanentError } from '../../src/index.ts'
import { deadline, named, useEngines } from '../support/use-engines.ts'

const engines = useEngines()

const good = defineJob({ type: named('good') }, { run: () => null })
const bad = defineJob(
  { type: named('bad') },
  {
    run() {
      throw new PermanentError('as planned')
    },
  },
)
/** Nobody runs these. */
const elsewhere: NewJob = { type: named('elsewhere') }

/** Runs a parent of these children to its end, and gives what a subscriber is told of each job, by type. */
async function movesOf(children: (NewJob | ContractJob)[]): Promise<Record<string, string[][]>> {
  const tree = defineJob(
    { type: named('tree') },
    {
      async ingest(ctx) {
        await ctx.spawn(children)
      },
      async aggregate() {},
    },
  )
  const { engine } = await engines.engineWith([tree, good, bad])
  const batches = engine.feed()
  await batches.next()
  const { id } = await engine.enqueue(tree.with({}))
  await engine.waitFor(id, deadline)
  // One more, behind which nothing of the tree may come.
  const last = await engine.enqueue(elsewhere)
  const byJob = new Map<string, JobEvent[]>()
  for await (const { events } of batches) {
    for (const event of events) byJob.set(event.jobId, [...(byJob.get(event.jobId) ?? []), event])
    if (byJob.has(last.id)) break
  }
  byJob.delete(last.id)

  const moves: Record<string, string[][]> = {}
  for (const events of byJob.values()) {
    // None is missing, none is there twice.
    expect(events.map((event) => event.version)).toEqual(events.map((_, n) => events[0]!.version + n))
    const type = events[0]!.type === tree.type ? 'parent' : events[0]!.type
    moves[type] ??= []
    moves[type].push(events.map(({ kind, from, to }) => (kind === 'moved' ? `${from} → ${to}` : kind)))
  }
  return moves
}

const WAITING = ['created', 'queued → running', 'running → waiting']

test('one event is told of each move of a parent that is woken', async () => {
  const child = ['created', 'queued → running', 'running → completed']
  expect(await movesOf([good.with({}), good.with({})])).toEqual({
    parent: [[...WAITING, 'waiting → queued', 'queued → running', 'running → completed']],
    [good.type]: [child, child],
  })
})

test("one event is told of the move of a parent that its child's policy fails (case 50)", async () => {
  const children = [bad.with({}, { onChildFailure: 'fail_parent' }), elsewhere, elsewhere]
  const cancelled = ['created', 'queued → cancelled']
  expect(await movesOf(children)).toEqual({
    parent: [[...WAITING, 'waiting → failed']],
    [bad.type]: [['created', 'queued → running', 'running → failed']],
    [elsewhere.type]: [cancelled, cancelled],
  })
})
