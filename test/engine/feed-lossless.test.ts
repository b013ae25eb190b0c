import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openDatabase } from '../../src/db/database.ts'
import { decodeCursor, encodeCursor } from '../../src/engine/feed/cursor.ts'
import type { JobEvent } from '../../src/engine/feed/event.ts'
import { createFeedReader } from '../../src/engine/feed/reader.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type FeedProcess, startFeed, type Writer } from './feed-support.ts'

/*
 * Eight writers move jobs in transactions that are held open, rolled back, or partly rolled back; readers and
 * subscribers die and come back at random. Everybody must see every committed event once, each job's in order.
 */

const JOBS = 60
const WRITERS = 8
/** Writing goes on for so long, and until there is so much. */
const WRITING_MS = 4_000
const COMMITS = 800
/** After that, for the consumers. */
const DEADLINE_MS = 40_000

const random = (below: number) => Math.floor(Math.random() * below)
const chance = (share: number) => Math.random() < share

let database: TestDatabase
let jobs: string[]

beforeAll(async () => {
  database = await createTestDatabase()
  jobs = Array.from({ length: JOBS }, () => randomUUID()).sort()
  await database.pool.query(
    `insert into coppice.job (id, tree_id, type, version) select id, id, 'noop', 0 from unnest($1::uuid[]) id`,
    [jobs],
  )
})

afterAll(async () => {
  await database?.drop()
})

/** Moves some jobs and writes their events, as a verb of the engine does. */
async function move(client: Writer, ids: string[]): Promise<void> {
  await (client as pg.Client).query(
    `with locked as (select id from coppice.job where id = any ($1) order by id for no key update),
     moved as (update coppice.job j set version = version + 1 from locked where j.id = locked.id returning j.*)
     insert into coppice.job_event (kind, job_id, tree_id, type, "from", "to", phase, wave, attempt, version, actor)
     select 'moved', id, tree_id, type, 'queued', 'running', phase, wave, attempt, version, 'test' from moved`,
    [ids],
  )
}

/** Writes as long as it is told to; says each time that it has committed. */
async function write(more: () => boolean, committed: () => void): Promise<void> {
  const client = new pg.Client({ connectionString: database.connectionString })
  await client.connect()
  const pick = () =>
    [...new Set([jobs[random(JOBS)]!, jobs[random(JOBS)]!, jobs[random(JOBS)]!])].slice(0, 1 + random(3))
  try {
    while (more()) {
      try {
        await client.query('begin')
        // Takes its number early and writes later.
        if (chance(0.1)) await client.query('select pg_current_xact_id()')
        if (chance(0.2)) {
          await client.query('savepoint part')
          await move(client, pick())
          await client.query(chance(0.5) ? 'rollback to part' : 'release part')
        }
        await move(client, pick())
        if (chance(0.1)) await move(client, pick())
        // Held open, with its row locks: others overtake it.
        if (chance(0.02)) await sleep(random(300))
        const { command } = await client.query(chance(0.1) ? 'rollback' : 'commit')
        if (command === 'COMMIT') committed()
      } catch (error) {
        if ((error as { code?: string }).code !== '40P01') throw error
        await client.query('rollback')
      }
    }
  } finally {
    await client.end()
  }
}

/** What one consumer has seen, and what was wrong with it. */
class Witness {
  readonly seen = new Set<string>()
  readonly versions = new Map<string, number>()
  readonly faults: string[] = []
  restarts = 0

  take(events: readonly JobEvent[]): void {
    for (const { id, jobId, version } of events) {
      if (this.seen.has(id)) this.faults.push(`event ${id} came twice`)
      this.seen.add(id)
      const last = this.versions.get(jobId) ?? 0
      if (version !== last + 1) this.faults.push(`job ${jobId}: version ${version} after ${last}`)
      this.versions.set(jobId, version)
    }
  }
}

/** Ends the test's consumers when all have seen everything, or time is up. */
interface Goal {
  /** Number of events committed, once the writers are done. */
  total: number
  deadline: number
}

const reached = (witness: Witness, goal: Goal) => witness.seen.size >= goal.total || performance.now() > goal.deadline

/** Reads by pages of random size; dies now and then after a read, before it has taken note of it. */
async function readAndDie(goal: Goal, start: string, witness: Witness): Promise<void> {
  const db = openDatabase({ connectionString: database.connectionString, schema: database.schema, poolSize: 1 })
  let cursor = start
  try {
    while (!reached(witness, goal)) {
      const first = 1 + random(60)
      const batch = await createFeedReader(db).readBatch(decodeCursor(cursor), { first, scan: first + random(50) })
      if (chance(0.1)) {
        witness.restarts++
        continue
      }
      witness.take(batch.events)
      cursor = encodeCursor(batch.cursor)
      if (batch.caughtUp) await sleep(random(20))
    }
  } finally {
    await db.close()
  }
}

/** Subscribes to any of the processes; leaves at random, also without having taken note; dawdles at random. */
async function subscribeAndLeave(goal: Goal, feeds: () => FeedProcess[], start: string, witness: Witness) {
  let cursor = start
  while (!reached(witness, goal)) {
    const candidates = feeds()
    const batches = candidates[random(candidates.length)]!.feed.subscribe({ after: cursor })
    for (let left = 1 + random(25); left > 0 && !reached(witness, goal); left--) {
      const { value: batch } = await batches.next()
      if (batch === undefined) break
      if (left === 1 && chance(0.5)) break
      witness.take(batch.events)
      cursor = batch.cursor
      if (batch.ended === 'cursor_expired') witness.faults.push('expired')
      if (batch.ended !== null) break
      if (chance(0.05)) await sleep(random(150))
    }
    witness.restarts++
    await batches.return?.()
  }
}

test("no event is lost, none comes twice, each job's are in order", async () => {
  const options = { pollMs: 500, beatMs: 50, bufferEvents: 100, maxBehind: 400 }
  const processes = [await startFeed(database, options), await startFeed(database, options)]
  const { cursor } = (await processes[0]!.feed.subscribe().next()).value!
  const goal: Goal = { total: Number.POSITIVE_INFINITY, deadline: Number.POSITIVE_INFINITY }
  const witnesses = Array.from({ length: 13 }, () => new Witness())

  const writing = (async () => {
    const end = performance.now() + WRITING_MS
    let commits = 0
    const more = () => performance.now() < end || commits < COMMITS
    await Promise.all(Array.from({ length: WRITERS }, () => write(more, () => commits++)))
    goal.deadline = performance.now() + DEADLINE_MS
    const { rows } = await database.pool.query('select count(*)::int as total from coppice.job_event')
    goal.total = rows[0].total
  })()
  const ringing = (async () => {
    // Now and then, and by one of the processes only: much is left to the poll.
    while (goal.total === Number.POSITIVE_INFINITY) {
      processes[0]!.doorbell.ring()
      await sleep(random(80))
    }
  })()
  const restarting = (async () => {
    while (goal.total === Number.POSITIVE_INFINITY) {
      await sleep(500)
      const old = processes.shift()!
      processes.push(await startFeed(database, options))
      await old.close()
    }
  })()
  const consuming = witnesses.map((witness, n) =>
    n < 3 ? readAndDie(goal, cursor, witness) : subscribeAndLeave(goal, () => processes, cursor, witness),
  )
  await Promise.all([writing, ringing, restarting, ...consuming])
  for (const process of processes) await process.close()

  expect(goal.total).toBeGreaterThan(COMMITS)
  const { rows } = await database.pool.query('select id from coppice.job_event')
  for (const witness of witnesses) {
    expect(witness.faults).toEqual([])
    expect(witness.restarts).toBeGreaterThan(1)
    expect(rows.filter((row) => !witness.seen.has(row.id))).toEqual([])
    expect(witness.seen.size).toBe(goal.total)
  }
}, 150_000)
