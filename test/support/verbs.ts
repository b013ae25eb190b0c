import { randomUUID } from 'node:crypto'
import { type Database, openDatabase } from '../../src/db/database.ts'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import type { ClaimedJob } from '../../src/engine/claim/claimed-job.ts'
import { enqueueJobs } from '../../src/engine/enqueue.ts'
import type { NewJob, Outcome } from '../../src/engine/job.ts'
import { type PreparedJob, prepareJobs } from '../../src/engine/prepare.ts'
import { type SettleReport, settle } from '../../src/engine/settle/settle.ts'
import { createTestDatabase, type TestDatabase } from './database.ts'

/** The engine's verbs by hand, with no worker: a test decides what is claimed and how each attempt ends. */
export interface Verbs {
  test: TestDatabase
  db: Database
  workerId: string
  enqueue(...jobs: NewJob[]): Promise<string[]>
  claim(limit?: number): Promise<ClaimedJob[]>
  /** Claims until this very job is held; others that come along are put back. */
  hold(id: string): Promise<ClaimedJob>
  end(job: ClaimedJob, outcome: Outcome): Promise<SettleReport>
  complete(...jobs: ClaimedJob[]): Promise<SettleReport>
  prepare(jobs: NewJob[]): Promise<PreparedJob[]>
  /** Ends a phase by spawning. */
  spawn(job: ClaimedJob, children: NewJob[]): Promise<SettleReport>
  /** Some columns of a job's row. */
  // biome-ignore lint/suspicious/noExplicitAny: a test knows which columns it asks for.
  row(id: string): Promise<Record<string, any>>
  close(): Promise<void>
}

/** A fresh database with one worker's row, and the verbs on it. */
export async function createVerbs({ types = ['a', 'b', 'c', 'p'] } = {}): Promise<Verbs> {
  const test = await createTestDatabase()
  const db = openDatabase({ connectionString: test.connectionString, schema: test.schema, poolSize: 60 })
  const workerId = await addWorker(test)
  const claim = (limit = 100) => claimJobs(db, { workerId, types, queues: null, limit })
  const end = (job: ClaimedJob, outcome: Outcome) => settle(db, [{ job, outcome }], { actor: `WK_${workerId}` })
  return {
    test,
    db,
    workerId,
    claim,
    end,
    enqueue: async (...jobs) =>
      (await enqueueJobs(db, await prepareJobs(jobs), { actor: 'test' })).map((enqueued) => enqueued.id),
    async hold(id) {
      const jobs = await claim(1000)
      const wanted = jobs.find((job) => job.id === id)
      await settle(
        db,
        jobs
          .filter((job) => job !== wanted)
          .map((job) => ({ job, outcome: { kind: 'requeue', delayMs: 0, reason: 'test' } })),
        { actor: 'test' },
      )
      if (!wanted) throw new Error(`job ${id} was not to be claimed`)
      return wanted
    },
    complete: (...jobs) =>
      settle(
        db,
        jobs.map((job) => ({ job, outcome: { kind: 'completed', result: null } })),
        { actor: `WK_${workerId}` },
      ),
    prepare: (jobs) => prepareJobs(jobs),
    spawn: async (job, children) => end(job, { kind: 'waiting', children: await prepareJobs(children) }),
    async row(id) {
      return (await test.pool.query(`select * from ${test.schema}.job where id = $1`, [id])).rows[0]
    },
    async close() {
      await db.close()
      await test.drop()
    },
  }
}

/** A worker's row, so that claims under its id are taken. */
export async function addWorker(test: TestDatabase): Promise<string> {
  const id = randomUUID()
  await test.pool.query(
    `insert into ${test.schema}.worker (id, host, pid, queues, types, concurrency, beat_interval, schema_version)
     values ($1, 'test', 1, '{}', '{}', 10, 5000, 1)`,
    [id],
  )
  return id
}
