import { randomUUID } from 'node:crypto'
import type { Database } from '../../src/db/database.ts'
import { archiveJob, unarchiveJob } from '../../src/engine/archive.ts'
import { setAssignee } from '../../src/engine/assignee.ts'
import { cancelJob, deleteJob, failFailingParents } from '../../src/engine/cascade.ts'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import type { ClaimedJob } from '../../src/engine/claim/claimed-job.ts'
import { enqueueJobs } from '../../src/engine/enqueue.ts'
import { EngineError } from '../../src/engine/errors.ts'
import type { NewJob, Outcome } from '../../src/engine/job.ts'
import { pauseJob, resumeJob } from '../../src/engine/pause.ts'
import { prepareJobs } from '../../src/engine/prepare.ts'
import { retryJob } from '../../src/engine/reopen.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import type { SettleItem } from '../../src/engine/settle/settle-batch.ts'
import { spawnChildren } from '../../src/engine/spawn.ts'
import { spawnChunk } from '../../src/engine/spawn-chunk.ts'

/*
 * Every verb at random against one database, as many clients at once, and then everything is run to its end. The caller
 * checks the invariants. No reconciler takes part: what is left asleep at the end is a lost wake.
 */

export interface ChaosOptions {
  seconds: number
  /** Loops that claim and settle. */
  clients: number
  /** Loops that steer. */
  steerers: number
}

/** How often each thing happened. */
export type ChaosCounts = Record<string, number>

const TYPES = ['flat', 'parent']
const ASSIGNEES = ['ann', 'bob', 'cem']
const actor = 'chaos'

const random = (n: number) => Math.floor(Math.random() * n)
const chance = (p: number) => Math.random() < p

export async function runChaos(db: Database, options: ChaosOptions): Promise<ChaosCounts> {
  const counts: ChaosCounts = {}
  const count = (what: string, n = 1) => {
    counts[what] = (counts[what] ?? 0) + n
  }
  const workerIds = await Promise.all(Array.from({ length: options.clients }, () => addWorker(db)))
  for (const id of ASSIGNEES) await setAssignee(db, id, 'active', { actor })
  const until = performance.now() + options.seconds * 1000
  const running = () => performance.now() < until

  const work = async (workerId: string) => {
    while (running()) {
      const jobs = await claimJobs(db, { workerId, types: TYPES, queues: null, limit: 1 + random(12) })
      count('claims', jobs.length)
      if (jobs.length === 0) await enqueueRoots(db)
      for (const job of jobs) {
        if (job.depth < 2 && chance(0.15))
          count(`chunk${(await refusable(() => streamSome(db, job))) ? '' : ' refused'}`)
      }
      const items = await Promise.all(jobs.map(async (job) => ({ job, outcome: await randomOutcome(job) })))
      const report = await settle(db, shuffled(items), { actor })
      count('settled', report.settled.length)
      count('stale', report.stale.length)
      count('woken', report.woken.length)
      if (report.refused.length > 0) throw report.refused[0]!.error
    }
  }
  const steer = async () => {
    while (running()) {
      const [verb, act] = STEERING[random(STEERING.length)]!
      const done = await refusable(() => act(db, workerIds))
      count(`${verb}${done ? '' : ' refused'}`)
    }
  }
  await Promise.all([...workerIds.map(work), ...Array.from({ length: options.steerers }, steer)])
  await drain(db, workerIds[0]!)
  return counts
}

/** Resumes, activates, fails what is to fail, and runs every job to its end. */
async function drain(db: Database, workerId: string): Promise<void> {
  for (const id of ASSIGNEES) await setAssignee(db, id, 'active', { actor })
  for (let idle = 0; idle < 2; ) {
    let did = 0
    for (const id of await pick(db, `state = 'paused' and archived_at is null`, 1000)) {
      did += (await refusable(() => resumeJob(db, id, { actor }))) ? 1 : 0
    }
    const failing = await pick(db, `failing_child_id is not null and state in ('queued', 'waiting', 'paused')`, 1000)
    did += (await failFailingParents(db, failing, { actor })).failed.length
    did += await endAbandoned(db, 'completed')
    await db.pool.query(`update ${db.tables.job} set run_at = now() where state = 'queued' and run_at > now()`)
    const jobs = await claimJobs(db, { workerId, types: TYPES, queues: null, limit: 500 })
    await settle(
      db,
      jobs.map((job) => ({ job, outcome: { kind: 'completed', result: null } as Outcome })),
      { actor },
    )
    idle = did + jobs.length === 0 ? idle + 1 : 0
  }
}

async function randomOutcome(job: ClaimedJob): Promise<Outcome> {
  if (job.phase === 'ingest' && job.depth < 3 && chance(job.depth === 0 ? 0.9 : 0.4)) return spawnSome(1 + random(4))
  if (job.phase === 'aggregate' && job.wave < 3 && chance(0.15)) return spawnSome(random(3))
  if (chance(0.1)) return { kind: 'failed', error: { message: 'chaos', code: 'UNKNOWN' } }
  if (chance(0.1)) return { kind: 'retry', delayMs: 0, error: { message: 'chaos', code: 'NETWORK' } }
  if (chance(0.05)) return { kind: 'requeue', delayMs: random(20), reason: 'snooze' }
  return { kind: 'completed', result: { n: random(100) } }
}

async function spawnSome(n: number): Promise<Outcome> {
  return { kind: 'waiting', children: await prepareJobs(Array.from({ length: n }, () => newJob(2))) }
}

/** A chunk of a stream, before the attempt ends in whatever way: some of its children may be there already. */
async function streamSome(db: Database, job: ClaimedJob): Promise<void> {
  const keyed = Array.from({ length: 1 + random(4) }, () => ({ ...newJob(1), key: `k${random(5)}` }))
  await spawnChunk(db, job, await prepareJobs(keyed), actor)
}

function newJob(levels: number): NewJob {
  return {
    type: chance(0.5) ? 'flat' : 'parent',
    priority: random(3),
    queue: chance(0.2) ? 'other' : 'default',
    ...(chance(0.1) ? { assigneeId: ASSIGNEES[random(ASSIGNEES.length)]! } : {}),
    ...(chance(0.1) ? { onChildFailure: 'fail_parent' as const } : {}),
    ...(chance(0.1) ? { failureTolerance: chance(0.5) ? 1 : '40%' } : {}),
    ...(chance(0.15) ? { orphanPolicy: 'keep' as const } : {}),
    ...(chance(0.2) ? { key: `k${random(5)}` } : {}),
    ...(levels > 0 && chance(0.2) ? { children: Array.from({ length: random(4) }, () => newJob(levels - 1)) } : {}),
  }
}

async function enqueueRoots(db: Database): Promise<void> {
  const jobs = await prepareJobs(Array.from({ length: 5 }, () => ({ ...newJob(2), type: 'parent' })))
  // Keys of roots would soon all be taken.
  await enqueueJobs(
    db,
    jobs.map((job) => ({ ...job, key: null })),
    { actor },
  )
}

type Steering = (db: Database, workerIds: readonly string[]) => Promise<unknown>

const STEERING: readonly (readonly [string, Steering])[] = [
  ['enqueue', (db) => enqueueRoots(db)],
  ['enqueue', (db) => enqueueRoots(db)],
  ['delete', (db) => onOne(db, `depth <= 2`, (id) => deleteJob(db, id, { actor }))],
  ['cancel', (db) => onOne(db, `state in ('waiting', 'queued', 'running')`, (id) => cancelJob(db, id, { actor }))],
  ['pause', (db) => onOne(db, `state in ('waiting', 'queued', 'running')`, (id) => pauseJob(db, id, { actor }))],
  ['resume', (db) => onOne(db, `state = 'paused'`, (id) => resumeJob(db, id, { actor }))],
  ['archive', (db) => onOne(db, `depth > 0 and archived_at is null`, (id) => archiveJob(db, id, { actor }))],
  [
    'retry',
    (db) =>
      onOne(db, `state in ('failed', 'cancelled') and archived_at is null`, (id) =>
        retryJob(db, id, { actor, descendants: chance(0.5) }),
      ),
  ],
  ['rerun', (db) => onOne(db, `state = 'completed'`, (id) => retryJob(db, id, { actor, rerun: true }))],
  ['pause tree', (db) => onOne(db, `state = 'waiting'`, (id) => pauseJob(db, id, { actor, descendants: true }))],
  ['resume tree', (db) => onOne(db, `state = 'paused'`, (id) => resumeJob(db, id, { actor, descendants: true }))],
  ['unarchive', (db) => onOne(db, `archived_at is not null`, (id) => unarchiveJob(db, id, { actor }))],
  [
    'spawn from outside',
    async (db) => {
      const children = await prepareJobs([newJob(1), newJob(1)])
      return onOne(db, `state in ('waiting', 'queued', 'running')`, (id) => spawnChildren(db, id, children, { actor }))
    },
  ],
  ['assignee', (db) => setAssignee(db, ASSIGNEES[random(3)]!, chance(0.5) ? 'active' : 'paused', { actor })],
  ['recover', (db) => endAbandoned(db, chance(0.2) ? 'failed' : 'retry', 10)],
  ['fail failing', async (db) => failFailingParents(db, await pick(db, 'failing_child_id is not null', 10), { actor })],
]

/** Settles attempts of others, as lease recovery does; returns how many. */
async function endAbandoned(db: Database, kind: 'completed' | 'failed' | 'retry', limit = 1000): Promise<number> {
  const { rows } = await db.pool.query(
    `select id, tree_id as "treeId", parent_id as "parentId", depth, wave, claim_token as "claimToken",
       child_count as "childCount" from ${db.tables.job} where state = 'running' limit ${limit}`,
  )
  const error = { message: 'lease lost', code: 'LEASE_LOST' as const }
  const outcome: Outcome =
    kind === 'completed' ? { kind, result: null } : kind === 'failed' ? { kind, error } : { kind, error, delayMs: 0 }
  const report = await settle(
    db,
    rows.map((job): SettleItem => ({ job, outcome })),
    { actor },
  )
  return report.settled.length
}

async function onOne(db: Database, where: string, act: (id: string) => Promise<unknown>): Promise<void> {
  const [id] = await pick(db, where, 1)
  if (id !== undefined) await act(id)
}

/** Some jobs at random out of the newest ones. */
async function pick(db: Database, where: string, limit: number): Promise<string[]> {
  const { rows } = await db.pool.query(
    `select id from (select id from ${db.tables.job} where ${where} order by id desc limit 300) newest
     order by random() limit ${limit}`,
  )
  return rows.map((row) => row.id)
}

/** False: refused, as a verb that lost a race is. Anything but a refusal is thrown. */
async function refusable(act: () => Promise<unknown>): Promise<boolean> {
  try {
    await act()
    return true
  } catch (error) {
    if (error instanceof EngineError) return false
    throw error
  }
}

function shuffled<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, rank: Math.random() }))
    .sort((a, b) => a.rank - b.rank)
    .map(({ item }) => item)
}

async function addWorker(db: Database): Promise<string> {
  const id = randomUUID()
  await db.pool.query(
    `insert into ${db.tables.worker} (id, host, pid, queues, types, concurrency, beat_interval, schema_version)
     values ($1, 'chaos', 1, '{}', '{}', 10, 5000, 1)`,
    [id],
  )
  return id
}
