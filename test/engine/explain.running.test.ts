import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { cancelJob } from '../../src/engine/cascade.ts'
import { pauseJob } from '../../src/engine/pause.ts'
import { defineJob } from '../../src/index.ts'
import { type Explaining, explaining, fromNow, knowing } from '../support/explaining.ts'
import { createVerbs, type Verbs } from '../support/verbs.ts'

let v: Verbs
let x: Explaining
beforeAll(async () => {
  v = await createVerbs()
  x = explaining(v)
})
beforeEach(() => x.worker({ host: 'forge', pid: 7, dead_at: null, heartbeat_at: fromNow(-3_000) }))
afterAll(() => v.close())

const HOUR = 3_600_000

test('a running job: how long, where, and which limit ends it', async () => {
  const [id] = await v.enqueue({ type: 'a', timeouts: { ingest: '3h' }, maxRetries: 1 })
  await v.hold(id!)
  await x.set(id!, { claimed_at: fromNow(-2 * HOUR - 300_000), progress: '{"current":3,"total":9}' })
  const [running, ...others] = await x.explain(id!)
  expect(others).toEqual([])
  expect(running).toMatchObject({
    reason: 'running',
    jobs: [],
    count: 0,
    facts: {
      attempt: 1,
      phase: 'ingest',
      worker: `WK_${v.workerId}`,
      host: 'forge',
      pid: 7,
      workerLost: false,
      limitMs: 3 * HOUR,
      limitFrom: 'job',
      pauseRequested: false,
      progress: { current: 3, total: 9 },
    },
    next: expect.stringContaining('goes back into the queue with a retry spent'),
  })
  expect(running!.sentence).toMatch(
    new RegExp(
      `^It has been running for 2 h 5 min on forge \\(worker WK_${v.workerId}, pid 7\\)\\. This is attempt 1, in ingest\\. ` +
        `Its worker's heartbeat is \\d s old\\. Its own limit of 3 h ends it in 54 min \\d+ s\\.$`,
    ),
  )
  const { claimed_at: claimedAt } = await v.row(id!)
  expect(running!.nextAt).toEqual(new Date(claimedAt.getTime() + 3 * HOUR))
  await x.set(id!, { claimed_at: fromNow(-3 * HOUR - 5_000), retry_count: 1 })
  const [late] = await x.explain(id!)
  expect(late!.sentence).toMatch(/Its own limit of 3 h has passed \d s ago\.$/)
  expect(late!.next).toContain('fails, for it has no retries left')
})

test('the limit of its type where it is known, and the default of a day where it is not', async () => {
  const [id] = await v.enqueue({ type: 'a' })
  await v.hold(id!)
  const typed = (ingest: string) => knowing(defineJob({ type: 'a' }, { timeouts: { ingest }, async run() {} }))
  expect((await x.explain(id!))[0]).toMatchObject({ facts: { limitMs: 24 * HOUR, limitFrom: 'default' } })
  expect((await x.explain(id!, knowing(defineJob({ type: 'a' }, { async run() {} }))))[0]).toMatchObject({
    facts: { limitMs: 24 * HOUR, limitFrom: 'default' },
    sentence: expect.stringContaining('The default limit of 1 d ends it in 23 h 59 min'),
  })
  expect((await x.explain(id!, typed('2h')))[0]).toMatchObject({
    facts: { limitMs: 2 * HOUR, limitFrom: 'type' },
    sentence: expect.stringContaining("Its type's limit of 2 h ends it in 1 h 59 min"),
  })
  expect((await x.explain(id!, typed('none')))[0]).toMatchObject({
    facts: { limitMs: null, limitFrom: 'type', endsAt: null },
    next: null,
    nextAt: null,
    sentence: expect.stringContaining('No limit ends it.'),
  })
})

test('a running job whose worker is gone', async () => {
  const [id] = await v.enqueue({ type: 'a' })
  await v.hold(id!)
  await x.worker({ heartbeat_at: fromNow(-60_000) })
  const [stale] = await x.explain(id!)
  expect(stale).toMatchObject({ facts: { workerLost: true }, nextAt: null, next: expect.stringContaining('recovery') })
  expect(stale!.sentence).toContain('pid 7; it is gone)')
  await x.worker({ heartbeat_at: fromNow(0), dead_at: fromNow(0) })
  expect((await x.explain(id!))[0]).toMatchObject({ facts: { workerLost: true } })
  await x.set(id!, { worker_id: '00000000-0000-4000-8000-000000000000' })
  expect((await x.explain(id!))[0]).toMatchObject({
    facts: { workerLost: true, host: null, heartbeatAgeMs: null },
    sentence: expect.stringContaining('under worker WK_00000000-0000-4000-8000-000000000000, which is gone.'),
  })
})

test('a running job that is to be paused says so', async () => {
  const [id] = await v.enqueue({ type: 'a' })
  await v.hold(id!)
  await pauseJob(v.db, id!, { actor: 'test' })
  expect((await x.explain(id!))[0]).toMatchObject({
    reason: 'running',
    facts: { pauseRequested: true },
    sentence: expect.stringContaining('It is paused when this attempt ends'),
  })
})

test('a job that has ended: how, and when', async () => {
  const [done, failed, cancelled] = await v.enqueue({ type: 'a', maxRetries: 0 }, { type: 'a' }, { type: 'a' })
  await v.end(await v.hold(done!), { kind: 'completed', result: 1 })
  await v.end(await v.hold(failed!), { kind: 'failed', error: { message: 'no such page', code: 'NOT_FOUND' } })
  await cancelJob(v.db, cancelled!, { actor: 'test', reason: 'INC-4711' })
  await x.set(failed!, { finished_at: new Date('2026-01-31T08:00:00.123Z'), archived_at: fromNow(0) })

  const [completed, ...others] = await x.explain(done!)
  expect(others).toEqual([])
  expect(completed).toMatchObject({
    reason: 'finished',
    facts: { state: 'completed', errorCode: null, cancelCode: null, archived: false },
    next: null,
    nextAt: null,
    sentence: expect.stringMatching(/^It completed less than a second ago, at \S+Z\.$/),
  })
  expect((await x.explain(failed!))[0]).toMatchObject({
    facts: { state: 'failed', errorCode: 'NOT_FOUND', error: 'no such page', archived: true },
    sentence: expect.stringMatching(/ ago, at 2026-01-31T08:00:00Z \(NOT_FOUND: no such page\)\. It is archived\.$/),
  })
  expect((await x.explain(cancelled!))[0]).toMatchObject({
    facts: { state: 'cancelled', cancelCode: 'requested', cancelReason: 'INC-4711' },
    sentence: expect.stringMatching(/^It was cancelled .* \(requested: INC-4711\)\.$/),
  })
})

test('a running job that plain SQL has archived says so', async () => {
  const [id] = await v.enqueue({ type: 'a' })
  await v.hold(id!)
  expect((await x.explain(id!))[0]).toMatchObject({ facts: { archived: false } })
  await x.set(id!, { archived_at: fromNow(0) })
  const [running, ...others] = await x.explain(id!)
  expect(others).toEqual([])
  expect(running).toMatchObject({
    reason: 'running',
    facts: { archived: true },
    sentence: expect.stringMatching(/ It is archived\.$/),
  })
})
