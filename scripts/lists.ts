import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { Command } from 'commander'
import { type Database, openDatabase } from '../src/db/database.ts'
import { removeEmbeddedData } from '../src/db/embedded/remove.ts'
import { startEmbeddedServer } from '../src/db/embedded/server.ts'
import { migrate } from '../src/db/migrate.ts'
import { NO_HEAVY } from '../src/engine/reads/columns.ts'
import { groupCounts } from '../src/engine/reads/groups.ts'
import type { JobFilter } from '../src/engine/reads/job-filter.ts'
import { childPages, type JobOrder, jobPage } from '../src/engine/reads/job-page.ts'
import { fillWithJobs, LARGE } from './large-table.ts'

// npm run lists: builds a large table and times every kind of list, in each order, at its front and far behind it.

const options = new Command()
  .option('--jobs <n>', 'jobs in the table', Number, 1_000_000)
  .option('--data <folder>', 'keep the server here, and use what an earlier run has built')
  .parse()
  .opts<{ jobs: number; data?: string }>()

const FILTERS: Record<string, JobFilter> = {
  'all jobs': {},
  'archived too': { archived: null },
  'archived only': { archived: true },
  'state, common': { states: ['completed'] },
  'state, rare and old': { states: ['failed'] },
  'active states': { states: ['queued', 'running', 'waiting', 'paused'] },
  'type, common': { types: ['type-1'] },
  'type, rare and old': { types: ['rare'] },
  'type, none': { types: ['nothing'] },
  'two types and a state': { types: ['type-1', 'type-2'], states: ['failed'] },
  queue: { queues: ['slow'] },
  'roots only': { roots: true },
  'children only': { roots: false },
  'created long ago': { createdBefore: LARGE.instant(0.1) },
  'created long ago, rare type': { createdBefore: LARGE.instant(0.05), types: ['rare'] },
  'created of late': { createdAfter: LARGE.instant(0.999) },
  tree: { treeId: LARGE.root },
  'parent of 100,000': { parentId: LARGE.root },
  'failed of 100,000': { parentId: LARGE.root, states: ['failed'] },
  assignee: { assigneeIds: ['ann'] },
  'assignee and state': { assigneeIds: ['ann'], states: ['queued'] },
  worker: { workerIds: [LARGE.worker] },
  'error code': { errorCodes: ['NETWORK'] },
  'error text': { error: 'refused' },
  'error text, none': { error: 'no such text' },
  key: { key: 'key-500000' },
  'label, common': { metadata: { page: 'home' } },
  'label, rare': { metadata: { ticket: 4711 } },
  'search, found': { search: 'type-1' },
  'search, not found': { search: 'no such text' },
  'search an id': { search: LARGE.root },
}

const ORDERS: JobOrder[] = [
  { field: 'created_at', direction: 'desc' },
  { field: 'created_at', direction: 'asc' },
  { field: 'updated_at', direction: 'desc' },
  { field: 'updated_at', direction: 'asc' },
]

const page = { size: 20, backwards: false, after: null, before: null }

/** Milliseconds: the best of three, since what matters is what the list reads, not who else uses the machine. */
async function timed(run: () => Promise<unknown>): Promise<string> {
  const times: number[] = []
  for (let n = 0; n < 3; n++) {
    const start = performance.now()
    await run()
    times.push(performance.now() - start)
  }
  return Math.min(...times)
    .toFixed(1)
    .padStart(9)
}

async function timeLists(db: Database): Promise<void> {
  console.log(
    `${'ms of a page of 20'.padEnd(30)}${['created ↓', 'created ↑', 'updated ↓', 'updated ↑'].map((o) => o.padStart(10)).join('')}`,
  )
  for (const [name, filter] of Object.entries(FILTERS)) {
    const times: string[] = []
    for (const order of ORDERS) times.push(await timed(() => jobPage(db, { filter, order, page, heavy: NO_HEAVY })))
    console.log(`${name.padEnd(30)} ${times.join(' ')}`)
  }
  const deep = await jobPage(db, {
    filter: { createdBefore: LARGE.instant(0.5) },
    order: ORDERS[0]!,
    page,
    heavy: NO_HEAVY,
  })
  const after = deep.edges.at(-1)!.cursor
  const behind = await timed(() =>
    jobPage(db, { filter: {}, order: ORDERS[0]!, page: { ...page, after }, heavy: NO_HEAVY }),
  )
  console.log(`${'behind half of the table'.padEnd(30)} ${behind}`)
  const children = await timed(() =>
    childPages(db, [LARGE.root], { filter: {}, order: ORDERS[1]!, page, heavy: NO_HEAVY }),
  )
  console.log(`${'children of one parent'.padEnd(30)} ${children}`)
  console.log(`${'counts by queue, type, state'.padEnd(30)} ${await timed(() => groupCounts(db))}`)
}

const folder = options.data ?? (await mkdtemp(path.join(os.tmpdir(), 'coppice-lists-')))
const server = await startEmbeddedServer({ dataDir: folder, durable: false })
const db = openDatabase({ connectionString: server.connectionString, poolSize: 2 })
try {
  await migrate({ connectionString: server.connectionString, schema: 'coppice' })
  await fillWithJobs(db, options.jobs)
  await timeLists(db)
} finally {
  await db.close()
  await server.stop()
  if (options.data === undefined) {
    await removeEmbeddedData(folder)
    await rm(folder, { recursive: true, force: true })
  }
}
