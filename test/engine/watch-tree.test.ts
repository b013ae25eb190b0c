import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import type { Engine } from '../../src/engine/engine.ts'
import { InvalidStateError, NotFoundError, ParentGoneError } from '../../src/engine/errors.ts'
import type { Outcome } from '../../src/engine/job.ts'
import { pageRequest } from '../../src/engine/reads/page.ts'
import { readTrees } from '../../src/engine/reads/tree.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { createTreeWatch } from '../../src/engine/watch/watch-tree.ts'
import { createEngine, type Job, type StateCounts, type TreeUpdate, type WatchTreeOptions } from '../../src/index.ts'
import { createTestEngine, type TestEngine } from '../support/engine.ts'
import { expireCursors } from '../support/expire-cursors.ts'
import { until } from '../support/until.ts'
import { addWorker } from '../support/verbs.ts'
import { startFeed } from './feed-support.ts'

let t: TestEngine
let engine: Engine
let workerId: string
beforeAll(async () => {
  t = await createTestEngine()
  engine = t.engine
  workerId = await addWorker(t.test)
})
afterAll(() => t.close())

const sql = (text: string, parameters: unknown[] = []) => t.test.pool.query(text, parameters)
const subscribers = () => engine.feed.stats().subscribers

/** Follows a tree and applies what it is told. */
class Follower {
  readonly updates: TreeUpdate[] = []
  readonly jobs = new Map<string, Job>()
  counts: StateCounts | undefined
  over = false
  error: unknown
  readonly #updates: AsyncIterableIterator<TreeUpdate, undefined>

  constructor(by: Engine, id: string, options?: WatchTreeOptions, known: Iterable<[string, Job]> = []) {
    for (const [jobId, job] of known) this.jobs.set(jobId, job)
    this.#updates = by.watchTree(id, options)
    this.#follow().catch((error: unknown) => {
      this.error = error
    })
  }

  async #follow() {
    for await (const update of this.#updates) {
      this.updates.push(update)
      if (update.reset) this.jobs.clear()
      for (const job of update.jobs) this.jobs.set(job.id, job)
      for (const id of update.removed) this.jobs.delete(id)
      this.counts = update.counts
    }
    this.over = true
  }

  get last(): TreeUpdate | undefined {
    return this.updates.at(-1)
  }

  leave(): Promise<unknown> {
    return this.#updates.return!()
  }
}

/** A tree as it is in the database. */
async function readFresh(treeId: string): Promise<{ jobs: Map<string, Job>; counts: StateCounts }> {
  const limits = { max: 100_000, default: 100_000 }
  const nodes = [{ treeId, page: pageRequest({}, limits), states: null, maxDepth: null }]
  const heavy = new Set(['payload', 'result', 'metadata', 'checkpoint', 'error_stack'] as const)
  const trees = await readTrees(engine.database, { roots: [], counts: [treeId], nodes, heavy })
  return {
    jobs: new Map(trees.nodes[0]!.edges.map(({ node }) => [node.id, node])),
    counts: trees.counts.get(treeId)!,
  }
}

/** Waits until a follower has what the database has, all of it. */
async function expectSame(follower: Follower, treeId: string) {
  const fresh = await readFresh(treeId)
  await until(() => follower.last?.caughtUp && sameVersions(follower.jobs, fresh.jobs), {
    what: 'the follower has caught up',
  })
  expect(new Map([...follower.jobs].sort())).toEqual(new Map([...fresh.jobs].sort()))
  await until(() => JSON.stringify(follower.counts) === JSON.stringify(fresh.counts), { what: 'the same counts' })
}

function sameVersions(a: Map<string, Job>, b: Map<string, Job>): boolean {
  return a.size === b.size && [...a].every(([id, job]) => b.get(id)?.version === job.version)
}

async function enqueueTree(children: number): Promise<string> {
  const { id } = await engine.enqueue({
    type: 'root',
    children: Array.from({ length: children }, (_, n) => ({ type: 'leaf', payload: { n } })),
  })
  return id
}

/** Writes a waiting root with so many queued children, past the engine: quick. */
async function writeTree(children: number): Promise<string> {
  const id = randomUUID()
  await sql(
    `insert into coppice.job (id, tree_id, type, state, waiting_since, child_count, open_children)
     values ($1, $1, 'big', 'waiting', now(), $2, $2)`,
    [id, children],
  )
  await sql(
    `insert into coppice.job (id, tree_id, parent_id, parent_wave, depth, type, payload)
     select gen_random_uuid(), $1, $1, 1, 1, 'never', jsonb_build_object('n', n) from generate_series(1, $2::int) n`,
    [id, children],
  )
  return id
}

async function claim(type: string) {
  const [job] = await claimJobs(engine.database, { workerId, types: [type], queues: null, limit: 1 })
  engine.doorbell.ring()
  return job
}

async function end(type: string, outcome: Outcome): Promise<void> {
  const job = await claim(type)
  if (!job) return
  await settle(engine.database, [{ job, outcome }], { actor: `WK_${workerId}` })
  engine.doorbell.ring()
}

describe('a watched tree', () => {
  test('is told as it is, at once, then exactly what changes; by any job of it', async () => {
    const treeId = await enqueueTree(3)
    const child = [...(await readFresh(treeId)).jobs.values()].find((job) => job.parentId !== null)!
    const follower = new Follower(engine, `JB_${child.id}`)
    await until(() => follower.updates.length === 1 && subscribers() === 1)
    expect(follower.last).toMatchObject({ reset: true, removed: [], caughtUp: true, ended: null, counts: { total: 4 } })
    expect(follower.last!.jobs[0]!.id).toBe(treeId)
    expect(follower.last!.jobs[1]!.payload).toEqual({ n: 0 })

    await engine.cancelJob(child.id)
    await until(() => follower.updates.length > 1)
    await expectSame(follower, treeId)
    // The child and its parent, whose counter went down; nobody else, and each once.
    const told = follower.updates.slice(1).flatMap((update) => update.jobs)
    expect(new Set(told.map((job) => job.id))).toEqual(new Set([child.id, ...told.map((job) => job.id)]))
    expect(told.filter((job) => job.id === child.id)).toHaveLength(1)
    expect(follower.updates.slice(1).some((update) => update.reset)).toBe(false)

    await engine.archiveJob(child.id)
    await until(() => follower.last!.removed.includes(child.id))
    expect(follower.counts).toMatchObject({ total: 3, cancelled: 0 })
    await engine.unarchiveJob(child.id)
    await until(() => follower.jobs.has(child.id))
    await engine.deleteJob(treeId)
    await until(() => !follower.jobs.has(treeId))
    await expectSame(follower, treeId)
    await follower.leave()
    await until(() => subscribers() === 0)
  })

  test.each(Array.from({ length: 10 }, (_, n) => n))(
    'is what its updates make of it: random verbs, round %i',
    async (round) => {
      const treeId = await enqueueTree(6)
      const random = seeded(round)
      const early = new Follower(engine, treeId)
      let late: Follower | undefined
      const writers = Array.from({ length: 3 }, async () => {
        for (let n = 0; n < 12; n++) {
          await anyVerb(treeId, random)
          // In the midst of it all.
          if (n === 6) late ??= new Follower(engine, treeId)
        }
      })
      await Promise.all(writers)
      for (const follower of [early, late!]) {
        await expectSame(follower, treeId)
        expect(follower.updates.filter((update) => update.reset)).toHaveLength(1)
        const versions = new Map<string, number>()
        for (const job of follower.updates.flatMap((update) => update.jobs)) {
          // A parent comes again for its counters.
          const least = (versions.get(job.id) ?? 0) + (job.spawnWave === 0 && job.childCount === 0 ? 1 : 0)
          expect(job.version, `${job.id} comes twice`).toBeGreaterThanOrEqual(least)
          versions.set(job.id, job.version)
        }
        await follower.leave()
      }
    },
  )

  test('of 2,500 jobs comes in three updates, and may be gone on with after each of them', async () => {
    const treeId = await writeTree(2_499)
    const follower = new Follower(engine, treeId)
    await until(() => follower.last?.caughtUp)
    const shape = (updates: TreeUpdate[]) => updates.map(({ reset, jobs, caughtUp }) => [reset, jobs.length, caughtUp])
    expect(shape(follower.updates)).toEqual([
      [true, 1000, false],
      [false, 1000, false],
      [false, 500, true],
    ])
    await follower.leave()

    // Broken off after the first, while a job that was told of and one that was not are changed.
    const [first, , third] = follower.updates as [TreeUpdate, TreeUpdate, TreeUpdate]
    const known = first.jobs.map((job): [string, Job] => [job.id, job])
    await engine.cancelJob(first.jobs[5]!.id)
    await engine.deleteJob(first.jobs[6]!.id)
    await engine.cancelJob(third.jobs[5]!.id)
    const second = new Follower(engine, treeId, { after: first.cursor }, known)
    await until(() => second.last?.caughtUp)
    expect(second.updates.some((update) => update.reset)).toBe(false)
    await expectSame(second, treeId)
    await second.leave()
  })

  test('of more than 10,000 jobs is read in several parts; what changes between them follows', {
    timeout: 120_000,
  }, async () => {
    const treeId = await writeTree(11_500)
    const follower = engine.watchTree(treeId)
    const jobs = new Map<string, Job>()
    let changed = false
    for await (const update of follower) {
      for (const job of update.jobs) jobs.set(job.id, job)
      for (const id of update.removed) jobs.delete(id)
      if (update.caughtUp) break
      if (changed) continue
      changed = true
      await engine.cancelJob(update.jobs[1]!.id)
      await engine.deleteJob(update.jobs[2]!.id)
    }
    const fresh = await readFresh(treeId)
    expect(jobs.size).toBe(11_500)
    expect(sameVersions(jobs, fresh.jobs)).toBe(true)
  })

  test('is gone on with in another process, after the cursor of any update', async () => {
    const treeId = await enqueueTree(4)
    const other = createEngine({ connectionString: t.test.connectionString, schema: t.test.schema, worker: false })
    await other.start()
    const follower = new Follower(engine, treeId)
    await until(() => follower.last?.caughtUp)
    await end('leaf', { kind: 'completed', result: 1 })
    await expectSame(follower, treeId)
    await follower.leave()
    const { cursor } = follower.last!
    await end('leaf', { kind: 'completed', result: 2 })
    const leaf = [...follower.jobs.values()].find((job) => job.state === 'queued' && job.type === 'leaf')!
    await engine.deleteJob(leaf.id)

    const second = new Follower(other, treeId, { after: cursor }, follower.jobs)
    await expectSame(second, treeId)
    expect(second.updates[0]!.reset).toBe(false)
    const told = second.updates.flatMap((update) => [...update.jobs.map((job) => job.id), ...update.removed])
    expect(told).toContain(leaf.id)
    expect(new Set(told).size).toBe(told.length)
    expect(told.length).toBeLessThan(5)
    await second.leave()
    // Nothing has happened since: an empty update comes at once and says so.
    const third = new Follower(other, treeId, { after: second.last!.cursor })
    await until(() => third.updates.length === 1)
    expect(third.last).toMatchObject({ reset: false, jobs: [], removed: [], caughtUp: true, counts: second.counts })
    await third.leave()
    await other.stop()
  })

  test('whose cursor has expired is told anew', async () => {
    const treeId = await enqueueTree(2)
    const follower = new Follower(engine, treeId)
    await until(() => follower.last?.caughtUp)
    const { cursor } = follower.last!
    // The first one gives the second one a later number.
    await expireCursors(t.test.pool)
    const second = new Follower(engine, treeId, { after: cursor }, [['stale', follower.last!.jobs[0]!]])
    await expectSame(second, treeId)
    expect(second.updates[0]).toMatchObject({ reset: true, ended: null })
    // In the middle of its life too: a crash of the database leaves no epoch.
    const resets = () => follower.updates.filter((update) => update.reset).length
    const before = resets()
    await sql('delete from coppice.feed_epoch')
    await until(() => resets() > before, { what: 'a new snapshot' })
    await engine.cancelJob(treeId)
    await expectSame(follower, treeId)
    await Promise.all([follower.leave(), second.leave()])
  })

  test('that nobody knows, and what is no cursor, are refused', async () => {
    await expect(engine.watchTree(randomUUID()).next()).rejects.toThrow(NotFoundError)
    expect(() => engine.watchTree('x')).toThrow('Not a job id')
    const treeId = await enqueueTree(1)
    const { value } = await engine.watchTree(treeId).next()
    for (const after of ['x', `${value!.cursor}.x`, `${value!.cursor}.`, `.${value!.cursor}`]) {
      expect(() => engine.watchTree(treeId, { after }), after).toThrow(/cursor/)
    }
  })

  test('costs nothing more once its watcher has left: by return, by leaving the loop, by a signal', async () => {
    const treeId = await enqueueTree(2)
    await until(() => subscribers() === 0)
    const signals = new AbortController()
    const follower = new Follower(engine, treeId, { signal: signals.signal })
    await until(() => subscribers() === 1)
    const left = performance.now()
    signals.abort()
    await until(() => subscribers() === 0 && follower.over, { interval: 2 })
    expect(performance.now() - left).toBeLessThan(100)
    for await (const update of engine.watchTree(treeId)) if (update.caughtUp) break
    await until(() => subscribers() === 0)
    // Before it has begun, and in the midst of its first read.
    const never = engine.watchTree(treeId)
    await never.return!()
    expect(await never.next()).toEqual({ done: true, value: undefined })
    const soon = engine.watchTree(treeId)
    const pending = soon.next()
    await soon.return!()
    expect(await pending).toEqual({ done: true, value: undefined })
    expect(subscribers()).toBe(0)
  })

  test('outlives connections that break', async () => {
    const treeId = await enqueueTree(2)
    const follower = new Follower(engine, treeId)
    await until(() => subscribers() === 1)
    for (let n = 0; n < 5; n++) {
      await sql(
        `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name like 'coppice%' and pid <> pg_backend_pid()`,
      )
      await until(() =>
        engine.cancelJob(treeId).then(
          () => true,
          (error) => error instanceof InvalidStateError,
        ),
      )
      await until(() =>
        engine.retryJob(treeId).then(
          () => true,
          (error) => error instanceof InvalidStateError,
        ),
      )
    }
    await expectSame(follower, treeId)
    expect(follower.error).toBeUndefined()
    await follower.leave()
  })

  test('that is quiet is told now and then; a watcher that stops asking is ended, and goes on without loss', async () => {
    const treeId = await enqueueTree(3)
    const feed = await startFeed(t.test, { beatMs: 100, maxBehind: 20 })
    const watchTree = createTreeWatch(feed.db, feed.feed)
    const updates = watchTree(treeId)
    const jobs = new Map<string, Job>()
    const apply = (update: TreeUpdate) => {
      for (const job of update.jobs) jobs.set(job.id, job)
      for (const id of update.removed) jobs.delete(id)
    }
    const next = async () => {
      const { value, done } = await updates.next()
      if (done) throw new Error('over')
      apply(value)
      return value
    }
    const { cursor } = await next()
    await sql('select pg_current_xact_id()')
    const beat = await next()
    expect(beat).toMatchObject({
      reset: false,
      jobs: [],
      removed: [],
      caughtUp: true,
      ended: null,
      counts: { total: 4 },
    })
    expect(beat.cursor).not.toBe(cursor)

    const leaf = [...jobs.values()].find((job) => job.parentId !== null)!
    for (let n = 0; n < 30; n++) {
      await engine.pauseJob(leaf.id)
      await engine.resumeJob(leaf.id)
    }
    await until(() => feed.feed.stats().subscribers === 0, { what: 'the watcher is ended' })
    const last = await next()
    expect(last).toMatchObject({ jobs: [], ended: 'slow_consumer' })
    expect(await updates.next()).toEqual({ done: true, value: undefined })
    for await (const update of watchTree(treeId, { after: last.cursor })) {
      expect(update.reset).toBe(false)
      apply(update)
      if (update.caughtUp) break
    }
    expect(sameVersions(jobs, (await readFresh(treeId)).jobs)).toBe(true)
    await feed.close()
  })

  test('ends with a cursor when the engine stops', async () => {
    const treeId = await enqueueTree(1)
    const other = createEngine({ connectionString: t.test.connectionString, schema: t.test.schema, worker: false })
    await other.start()
    const follower = new Follower(other, treeId)
    await until(() => other.feed.stats().subscribers === 1)
    await other.stop()
    await until(() => follower.over)
    expect(follower.last).toMatchObject({ jobs: [], ended: 'shutdown', counts: { total: 2 } })
    const second = new Follower(engine, treeId, { after: follower.last!.cursor }, follower.jobs)
    await engine.cancelJob(treeId)
    await expectSame(second, treeId)
    await second.leave()
  })
})

/** Any verb on any job of the tree; refusals are part of it. */
async function anyVerb(treeId: string, random: () => number): Promise<void> {
  const pick = <T>(list: readonly T[]) => list[Math.floor(random() * list.length)]
  const { rows } = await sql('select id from coppice.job where tree_id = $1 order by id', [treeId])
  const id = (pick(rows) as { id: string } | undefined)?.id
  if (id === undefined) return
  const verbs: (() => Promise<unknown>)[] = [
    () => end('leaf', { kind: 'completed', result: 1 }),
    () => end('root', { kind: 'completed', result: 1 }),
    () => end('leaf', { kind: 'requeue', delayMs: 0, reason: 'test' }),
    () => engine.spawnChildren(id, [{ type: 'leaf', children: [{ type: 'leaf' }] }]),
    () => engine.cancelJob(id),
    () => engine.retryJob(id, { descendants: true }),
    () => engine.pauseJob(id, { descendants: true }),
    () => engine.resumeJob(id, { descendants: true }),
    () => engine.archiveJob(id),
    () => engine.unarchiveJob(id),
    () => (random() < 0.3 ? engine.deleteJob(id) : Promise.resolve()),
    () => sql(`update coppice.job set state = 'cancelled' where id = $1 and state in ('queued', 'paused')`, [id]),
  ]
  try {
    await pick(verbs)!()
  } catch (error) {
    const refusals = [InvalidStateError, NotFoundError, ParentGoneError]
    if (!refusals.some((refusal) => error instanceof refusal)) throw error
  }
}

/** The same numbers for the same seed. */
function seeded(seed: number): () => number {
  let state = seed * 2_654_435_761 + 1
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32
    return state / 2 ** 32
  }
}
