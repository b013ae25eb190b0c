import { afterAll, beforeAll, expect, it } from 'vitest'
import { fillWithJobs, LARGE } from '../../scripts/large-table.ts'
import { assignedCounts, assigneePage } from '../../src/engine/reads/assignees.ts'
import { NO_HEAVY } from '../../src/engine/reads/columns.ts'
import type { JobFilter } from '../../src/engine/reads/job-filter.ts'
import { childPages, jobPage } from '../../src/engine/reads/job-page.ts'
import { queues } from '../../src/engine/reads/queues.ts'
import { plansOf } from '../support/plans.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

/*
 * A table with the statistics of what it holds, where what is rare is also old: whatever a list is asked for, in whichever
 * order, it reads some rows for each queue, type and state, and never the table.
 */

const JOBS = 60_000
const SIZE = 20

let v: Verbs
beforeAll(async () => {
  v = await createVerbs()
  await fillWithJobs(v.db, JOBS)
})
afterAll(() => v.close())

const page = { size: SIZE, backwards: false, after: null, before: null }

/** Queues and types, states, root or child: how many probes a list makes. */
const PROBES = 2 * 21 * 6 * 2
/** And by what changed last two fronts of 2,000, each counted twice. */
const FEW = PROBES + 4 * 2000 + 2000

const FILTERS: Record<string, JobFilter> = {
  all: {},
  'archived too': { archived: null },
  'archived only': { archived: true },
  'a rare state': { states: ['failed'] },
  'a common state': { states: ['completed'] },
  'active states': { states: ['queued', 'running', 'waiting', 'paused'] },
  'a rare type': { types: ['rare'] },
  'no such type': { types: ['nothing'] },
  'type and state': { types: ['type-3'], states: ['cancelled'] },
  'a queue': { queues: ['slow'] },
  roots: { roots: true },
  'not roots': { roots: false },
  'enqueued since': { createdAfter: LARGE.instant(0.9) },
  'failed of many children': { parentId: LARGE.root, states: ['failed'] },
  'an assignee and a state': { assigneeIds: ['ann'], states: ['queued'] },
  'a worker': { workerIds: [LARGE.worker] },
  'an error code': { errorCodes: ['NETWORK'] },
  'no such text of an error': { error: 'no such text' },
  'a key': { key: 'key-500' },
  'a rare label': { metadata: { ticket: 4711 } },
  'an id': { search: LARGE.root },
  // Where the average says that there are many.
  'no children': { parentId: LARGE.worker },
  'no tree': { treeId: LARGE.worker },
  'an unknown assignee': { assigneeIds: ['nobody'] },
  'an error that never was': { errorCodes: ['PARSE'] },
}

/** Read in order by creation; by what changed last they sort what the filter leaves, a tenth of the table or more. */
const SORTED: Record<string, JobFilter> = {
  'enqueued before': { createdBefore: LARGE.instant(0.1) },
  'a tree': { treeId: LARGE.root },
  'many children': { parentId: LARGE.root },
  'an assignee': { assigneeIds: ['ann'] },
  'a common label': { metadata: { page: 'home' } },
}

const orders = [
  ['created_at', 'desc'],
  ['created_at', 'asc'],
  ['updated_at', 'desc'],
  ['updated_at', 'asc'],
] as const
const cases = [
  ...Object.entries(FILTERS).flatMap(([name, filter]) =>
    orders.map(([field, by]) => [name, field, by, filter] as const),
  ),
  ...Object.entries(SORTED).flatMap(([name, filter]) =>
    orders.slice(0, 2).map(([field, by]) => [name, field, by, filter] as const),
  ),
]

async function expectFewRows(read: (db: Verbs['db']) => Promise<unknown>, few: number): Promise<void> {
  const plans = await plansOf(v.db, read, async () => {})
  expect(plans.length).toBeGreaterThan(0)
  for (const { name, read, text } of plans) {
    expect(read, `${name}\n${text}`).toBeLessThan(few)
    expect(text).not.toMatch(/Seq Scan job\b/)
  }
}

it.each(cases)('%s, by %s %s', async (_name, field, direction, filter) => {
  const order = { field, direction }
  await expectFewRows((db) => jobPage(db, { filter, order, page, heavy: NO_HEAVY }), FEW)
  await expectFewRows((db) => jobPage(db, { filter, order, page: { ...page, backwards: true }, heavy: NO_HEAVY }), FEW)
})

it('a page far behind the front', async () => {
  const order = { field: 'created_at', direction: 'desc' } as const
  const middle = await jobPage(v.db, { filter: { createdBefore: LARGE.instant(0.5) }, order, page, heavy: NO_HEAVY })
  const after = middle.edges.at(-1)!.cursor
  await expectFewRows((db) => jobPage(db, { filter: {}, order, page: { ...page, after }, heavy: NO_HEAVY }), FEW)
})

it('pages of the children of several parents', async () => {
  const order = { field: 'created_at', direction: 'asc' } as const
  const parents = [LARGE.root, LARGE.worker]
  await expectFewRows((db) => childPages(db, parents, { filter: {}, order, page, heavy: NO_HEAVY }), 200)
})

it('queues, assignees and their jobs', async () => {
  // What is due longest: one probe for each queue and type of what is queued.
  await expectFewRows((db) => queues(db), 1000)
  await expectFewRows((db) => assigneePage(db, page, null), 200)
  await expectFewRows((db) => assignedCounts(db, ['ann']), JOBS / 50)
})
