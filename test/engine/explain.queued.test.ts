import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { setAssignee } from '../../src/engine/assignee.ts'
import { pauseJob, resumeJob } from '../../src/engine/pause.ts'
import { defineJob } from '../../src/index.ts'
import { type Explaining, explaining, fromNow, knowing } from '../support/explaining.ts'
import { addWorker, createVerbs, type Verbs } from '../support/verbs.ts'

let v: Verbs
let x: Explaining
beforeAll(async () => {
  v = await createVerbs()
  x = explaining(v)
})
beforeEach(async () => {
  await v.db.pool.query(`truncate ${v.db.tables.job}, ${v.db.tables.jobEvent}, ${v.db.tables.assignee} cascade`)
  await v.db.pool.query(`delete from ${v.db.tables.worker} where id <> $1`, [v.workerId])
  await x.worker({
    host: 'forge',
    types: ['a', 'b'],
    queues: [],
    stopping: false,
    dead_at: null,
    heartbeat_at: fromNow(0),
  })
})
afterAll(() => v.close())

test('a job that is due is in line: how many are before it, and who could take it', async () => {
  const [first, , urgent, last] = await v.enqueue(
    { type: 'a' },
    { type: 'a' },
    { type: 'a', priority: -1 },
    { type: 'a' },
    { type: 'b' },
    { type: 'a', queue: 'other' },
    { type: 'a', runAt: fromNow(60_000), priority: -1 },
  )
  const [inLine, ...others] = await x.explain(last!)
  expect(others).toEqual([])
  expect(inLine).toMatchObject({
    reason: 'in_line',
    jobs: [],
    count: 0,
    next: expect.stringContaining('as soon as it has a slot free'),
    nextAt: null,
    facts: { type: 'a', queue: 'default', before: 3, beforeAtLeast: false, workers: 1, slots: 10, busy: 0 },
  })
  expect(inLine!.sentence).toBe(
    'It may be claimed at any moment: about 3 of its type are before it in its queue. ' +
      '1 worker serves it, with 0 of 10 slots taken.',
  )
  expect((await x.explain(urgent!))[0]!.sentence).toContain('it is the first of its type in its queue')
  await v.hold(urgent!)
  expect((await x.explain(first!))[0]).toMatchObject({ facts: { before: 0, busy: 1 } })
})

test('a long line is counted so far and no further', async () => {
  await v.enqueue(...Array.from({ length: 1100 }, () => ({ type: 'a' })))
  const [last] = await v.enqueue({ type: 'a', priority: 1 })
  expect((await x.explain(last!))[0]).toMatchObject({
    facts: { before: 1000, beforeAtLeast: true },
    sentence: expect.stringContaining('at least 1,000 of its type are before it'),
  })
})

test('a delay, a backoff and a snooze are told apart', async () => {
  const [delayed, failing, snoozing] = await v.enqueue(
    { type: 'a', runAt: fromNow(7_200_000) },
    { type: 'a', maxRetries: 3 },
    { type: 'b' },
  )
  const [delay] = await x.explain(delayed!)
  const { run_at: runAt } = await v.row(delayed!)
  expect(delay).toMatchObject({
    reason: 'scheduled',
    facts: { why: 'delay', retry: null, error: null, runAt: runAt.toISOString() },
    nextAt: runAt,
  })
  expect(delay!.sentence).toMatch(/^It is not to run before \d{4}-\S+Z, in 1 h 59 min\.$/)

  await v.end(await v.hold(failing!), {
    kind: 'retry',
    delayMs: 30_000,
    error: { message: 'the mail server is away', code: 'NETWORK' },
  })
  const [retry] = await x.explain(failing!)
  expect(retry).toMatchObject({
    reason: 'scheduled',
    facts: { why: 'retry', retry: 1, maxRetries: 3, error: 'the mail server is away' },
  })
  expect(retry!.sentence).toMatch(
    /^It waits out a backoff: retry 1 of 3 in \d+ s, after NETWORK: the mail server is away\.$/,
  )

  await v.end(await v.hold(snoozing!), { kind: 'requeue', delayMs: 300_000, reason: 'snoozed' })
  const [snooze] = await x.explain(snoozing!)
  expect(snooze).toMatchObject({ reason: 'scheduled', facts: { why: 'snooze', retry: null } })
  expect(snooze!.sentence).toMatch(/^It has snoozed, and goes on in 4 min \d+ s\.$/)

  // A pause in between does not hide what it was queued for.
  for (const id of [failing!, snoozing!]) {
    await pauseJob(v.db, id, { actor: 'test' })
    await resumeJob(v.db, id, { actor: 'test' })
  }
  expect((await x.explain(failing!))[0]).toMatchObject({ facts: { why: 'retry' } })
  expect((await x.explain(snoozing!))[0]).toMatchObject({ facts: { why: 'snooze' } })
})

test('no worker: because none lives, none knows the type or serves the queue, or all are stopping', async () => {
  const [unknown, known] = await v.enqueue({ type: 'c' }, { type: 'a', queue: 'mail' })
  const [why] = await x.explain(unknown!)
  expect(why).toMatchObject({
    reason: 'no_worker',
    next: null,
    facts: {
      type: 'c',
      queue: 'default',
      why: 'type_unknown',
      live: 1,
      workers: [{ worker: `WK_${v.workerId}`, host: 'forge', types: ['a', 'b'], queues: [], stopping: false }],
    },
  })
  expect(why!.sentence).toBe(
    `It waits for a worker: none that lives knows its type c. Live: WK_${v.workerId} on forge (a and b).`,
  )

  expect(await x.reasons(known!)).toEqual(['in_line'])
  await x.worker({ queues: ['default', 'bulk'] })
  expect((await x.explain(known!))[0]).toMatchObject({
    reason: 'no_worker',
    facts: { why: 'queue_not_served' },
    sentence: expect.stringMatching(/serves its queue mail\. Live: .* on forge \(a and b, from default and bulk\)\.$/),
  })
  await x.worker({ queues: ['mail'] })
  expect(await x.reasons(known!)).toEqual(['in_line'])
  await x.worker({ stopping: true })
  expect((await x.explain(known!))[0]).toMatchObject({ reason: 'no_worker', facts: { why: 'all_stopping' } })
})

test('a worker whose heartbeat stands still does not count, although nobody is left to declare it dead', async () => {
  const [id] = await v.enqueue({ type: 'a' })
  await x.worker({ heartbeat_at: fromNow(-9_000) })
  expect(await x.reasons(id!)).toEqual(['in_line'])
  await x.worker({ heartbeat_at: fromNow(-11_000) })
  expect((await x.explain(id!))[0]).toMatchObject({
    reason: 'no_worker',
    facts: { why: 'none_lives', live: 0, workers: [] },
    sentence: 'It waits for a worker: none lives.',
  })
  await x.worker({ heartbeat_at: fromNow(0), dead_at: fromNow(0) })
  expect(await x.reasons(id!)).toEqual(['no_worker'])
})

const one = defineJob({ type: 'a' }, { concurrency: { limit: 2, key: () => 'k' }, async run() {} })

test('a concurrency limit: who holds the slots', async () => {
  const [first, second, third, elsewhere] = await v.enqueue(
    { type: 'a', concurrencyKey: 'k' },
    { type: 'a', concurrencyKey: 'k' },
    { type: 'a', concurrencyKey: 'k' },
    { type: 'a', concurrencyKey: 'other' },
  )
  await v.hold(first!)
  const types = knowing(one)
  expect((await x.explain(third!, types))[0]).toMatchObject({ reason: 'in_line', facts: { runningOfKey: 1 } })
  await v.hold(second!)
  await x.set(first!, { claimed_at: fromNow(-3_700_000) })
  const [limit, ...others] = await x.explain(third!, types)
  expect(others).toEqual([])
  expect(limit).toMatchObject({
    reason: 'concurrency_limit',
    jobs: [first, second],
    count: 2,
    facts: {
      type: 'a',
      key: 'k',
      limit: 2,
      running: 2,
      holders: [
        { job: `JB_${first}`, worker: `WK_${v.workerId}`, host: 'forge' },
        { job: `JB_${second}`, worker: `WK_${v.workerId}`, host: 'forge' },
      ],
    },
  })
  expect(limit!.sentence).toBe(
    `It waits for a slot: all 2 slots of type a under the key k are taken by JB_${first}, for 1 h 1 min on forge, and 1 other.`,
  )
  expect(await x.reasons(elsewhere!, types)).toEqual(['in_line'])
  // Who does not know the type does not know its limit.
  const [guess] = await x.explain(third!)
  expect(guess).toMatchObject({ reason: 'in_line', facts: { concurrencyKey: 'k', runningOfKey: 2 } })
  expect(guess!.sentence).toContain('2 run under its concurrency key')
})

test('a full limit is no reason for a job whose time has not come, nor for one that would not move anyway', async () => {
  const [first, second, later, set, marked] = await v.enqueue(
    { type: 'a', concurrencyKey: 'k' },
    { type: 'a', concurrencyKey: 'k' },
    { type: 'a', concurrencyKey: 'k', runAt: fromNow(60_000) },
    { type: 'a', concurrencyKey: 'k' },
    { type: 'a', concurrencyKey: 'k' },
  )
  await v.hold(first!)
  await v.hold(second!)
  const types = knowing(one)
  expect(await x.reasons(set!, types)).toEqual(['concurrency_limit'])
  expect(await x.reasons(later!, types)).toEqual(['scheduled'])
  await pauseJob(v.db, set!, { actor: 'test' })
  expect(await x.reasons(set!, types)).toEqual(['paused'])
  await x.set(marked!, { failing_child_id: first })
  expect(await x.reasons(marked!, types)).toEqual(['wake_withheld'])
})

test('a job of a limited type that has no key yet says so', async () => {
  const [id] = await v.enqueue({ type: 'a' })
  expect((await x.explain(id!, knowing(one)))[0]!.sentence).toContain('It has no concurrency key yet')
})

test('an assignee that is not active, or that nobody knows', async () => {
  const [id] = await v.enqueue({ type: 'a', assigneeId: 'ada' })
  const [unknown] = await x.explain(id!)
  expect(unknown).toMatchObject({
    reason: 'assignee_not_active',
    facts: { assignee: 'AS_ada', status: null, since: null },
  })
  expect(unknown!.sentence).toBe(
    'It has an assignee that nobody knows, AS_ada. It is claimed only while AS_ada is active.',
  )
  await setAssignee(v.db, 'ada', 'pending_approval', { actor: 'test' })
  const [pending] = await x.explain(id!)
  expect(pending).toMatchObject({ facts: { status: 'pending_approval', since: expect.any(String) }, next: null })
  expect(pending!.sentence).toMatch(/^It waits for its assignee AS_ada, which has been pending approval for /)
  await setAssignee(v.db, 'ada', 'active', { actor: 'test' })
  expect(await x.reasons(id!)).toEqual(['in_line'])
})

test('several reasons at once: what no clock ends comes first', async () => {
  await setAssignee(v.db, 'ada', 'paused', { actor: 'test' })
  const [all, due] = await v.enqueue(
    { type: 'c', assigneeId: 'ada', runAt: fromNow(60_000) },
    { type: 'a', assigneeId: 'ada' },
  )
  expect(await x.reasons(all!)).toEqual(['assignee_not_active', 'no_worker', 'scheduled'])
  expect(await x.reasons(due!)).toEqual(['assignee_not_active'])
  await pauseJob(v.db, all!, { actor: 'test' })
  expect(await x.reasons(all!)).toEqual(['paused', 'assignee_not_active', 'no_worker', 'scheduled'])
})

test('a paused job: since when, by whom, why', async () => {
  const [id] = await v.enqueue({ type: 'a' })
  await pauseJob(v.db, id!, { actor: 'ada', reason: 'INC-4711' })
  const [paused, ...others] = await x.explain(id!)
  expect(others).toEqual([])
  expect(paused).toMatchObject({
    reason: 'paused',
    facts: { by: 'ada', why: 'INC-4711', from: 'queued', forMs: expect.any(Number), since: expect.any(String) },
    next: null,
    nextAt: null,
  })
  expect(paused!.sentence).toBe(
    'It has been paused for less than a second, by ada (INC-4711). Resumed, it is queued again.',
  )
})

test('several workers are told by name, a crowd by number', async () => {
  const [id] = await v.enqueue({ type: 'c' })
  for (let n = 0; n < 11; n++) await addWorker(v.test)
  const [why] = await x.explain(id!)
  expect(why!.facts).toMatchObject({ live: 12 })
  expect(why!.facts.workers).toHaveLength(10)
  expect(why!.sentence).toMatch(/none that lives knows .* on test \(no types\) and 9 more\.$/)
})
