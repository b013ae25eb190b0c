import { expect, test } from 'vitest'
import { createEngine, declareJob, defineJob, type Engine, EngineError, ValidationError } from '../../src/index.ts'
import { named, useEngines } from '../support/use-engines.ts'

const { engineWith } = useEngines()

/** As from JavaScript, where no type keeps anything out. */
// biome-ignore lint/suspicious/noExplicitAny: that is what these tests are about
type Untyped = any

const NOBODY = '00000000-0000-7000-8000-000000000000'
/** Text that no compression makes smaller. */
const ideographs = (length: number) =>
  Array.from({ length }, () => String.fromCharCode(0x4e00 + Math.floor(Math.random() * 0x5000))).join('')

async function failure(run: () => unknown): Promise<unknown> {
  try {
    return await run()
  } catch (error) {
    return error
  }
}

/** Runs it, and expects a refusal that names these places. */
async function refused(run: () => unknown, ...paths: string[]): Promise<void> {
  const error = await failure(run)
  expect(error, String(run)).toBeInstanceOf(ValidationError)
  const { code, issues } = error as ValidationError
  expect(code).toBe('VALIDATION')
  expect(issues.map((issue) => issue.path.join('.')).sort(), String(run)).toEqual(paths.sort())
  for (const { message } of issues) expect(message).not.toBe('')
}

const unusable: [string, unknown][] = [
  ['NUL', 'a\0b'],
  ['half a surrogate pair', 'a\ud800'],
  ['too long', 'x'.repeat(10_001)],
  ['a number', 5],
  ['null', null],
]

test('the longest names and keys are stored, for roots and for children, and longer keys are refused', async () => {
  const { engine } = await engineWith([])
  const name = () => ideographs(200)
  const widest = () => ({
    type: name(),
    key: ideographs(666),
    queue: name(),
    assigneeId: name(),
    concurrencyKey: name(),
  })
  const [parent] = await engine.enqueueMany([{ ...widest(), children: [widest(), widest()] }])
  await engine.spawnChildren(parent!.id, [widest()])
  expect((await engine.listJobs({ filter: { treeId: parent!.id } })).edges).toHaveLength(4)
  await engine.cancelJob(parent!.id)
  await engine.archiveJob(parent!.id)
  await refused(() => engine.enqueue({ type: 'x', key: ideographs(667) }), 'key')
  await refused(() => engine.enqueue({ type: 'x', children: [{ type: 'y', key: ideographs(1000) }] }), 'children.0.key')
})

test('an actor that cannot be stored is refused by every verb before anything is done', async () => {
  const { engine, test: database } = await engineWith([])
  const { id } = await engine.enqueue({ type: named('still') })
  const assignee = named('assignee')
  const verbs: ((options: Untyped) => Promise<unknown>)[] = [
    (options) => engine.enqueue({ type: 'x' }, options),
    (options) => engine.enqueueMany([{ type: 'x' }], options),
    (options) => engine.spawnChildren(id, [{ type: 'x' }], options),
    (options) => engine.setAssignee(assignee, 'active', options),
    (options) => engine.sweepOrphans(options),
    ...steering(engine, id),
  ]
  for (const [, actor] of unusable) for (const verb of verbs) await refused(() => verb({ actor }), 'actor')
  for (const options of [null, 5, 'x']) for (const verb of verbs) await refused(() => verb(options), 'options')
  const { rows } = await database.pool.query(`select from ${database.schema}.assignee where id = $1`, [assignee])
  expect(rows).toHaveLength(0)
  expect(await engine.job(id)).toMatchObject({ state: 'queued', version: 1 })
  expect((await engine.listJobs({ filter: { types: ['x'] } })).edges).toEqual([])
})

function steering(engine: Engine, id: string): ((options: Untyped) => Promise<unknown>)[] {
  const filter = { ids: [id] }
  return [
    (options) => engine.cancelJob(id, options),
    (options) => engine.deleteJob(id, options),
    (options) => engine.pauseJob(id, options),
    (options) => engine.resumeJob(id, options),
    (options) => engine.retryJob(id, options),
    (options) => engine.rewakeParent(id, options),
    (options) => engine.archiveJob(id, options),
    (options) => engine.unarchiveJob(id, options),
    (options) => engine.cancelJobs(filter, options),
    (options) => engine.retryJobs(filter, options),
    (options) => engine.archiveJobs(filter, options),
    (options) => engine.deleteJobs(filter, options),
  ]
}

test('so is a reason', async () => {
  const { engine } = await engineWith([])
  const { id } = await engine.enqueue({ type: named('still') })
  for (const [, reason] of unusable) {
    for (const verb of steering(engine, id)) await refused(() => verb({ reason }), 'reason')
  }
  expect(await engine.job(id)).toMatchObject({ state: 'queued', version: 1 })
})

test('flags that are neither true nor false, and words that mean nothing, are refused', async () => {
  const { engine } = await engineWith([])
  const { id } = await engine.enqueue({ type: named('still') })
  const untyped: Untyped = engine
  await refused(() => untyped.pauseJob(id, { descendants: 'yes' }), 'descendants')
  await refused(() => untyped.retryJob(id, { rerun: 1, children: 'bogus' }), 'children', 'rerun')
  await refused(() => untyped.rewakeParent(id, { force: 'banana' }), 'force')
  await refused(() => untyped.cancelJobs({ ids: [id] }, { dryRun: 'no' }), 'dryRun')
  await refused(() => untyped.cancelJobs({ ids: [id] }, { limit: 'x' }), 'limit')
  expect(await engine.job(id)).toMatchObject({ state: 'queued', version: 1 })
})

test('what is no id is refused by everything that takes one', async () => {
  const { engine } = await engineWith([])
  const untyped: Untyped = engine
  for (const id of [undefined, null, 5, {}, 5n, 'x', '']) {
    for (const verb of ['job', 'explain', 'waitFor', 'watchTree']) await refused(() => untyped[verb](id), 'id')
    for (const verb of steering(engine, id as Untyped).slice(0, 8)) await refused(() => verb({}), 'id')
    await refused(() => untyped.spawnChildren(id, []), 'id')
  }
  for (const id of [undefined, null, 5, '', 'a\0', 'a\udc00', 'x'.repeat(201)]) {
    await refused(() => untyped.setAssignee(id, 'active'), 'id')
  }
  await refused(() => untyped.setAssignee('x', 'ACTIVE'), 'status')
})

test('a job that is not there is named in one form, however it was asked for', async () => {
  const { engine } = await engineWith([])
  for (const id of [NOBODY, `JB_${NOBODY}`]) {
    const all = [() => engine.explain(id), () => engine.waitFor(id), () => engine.spawnChildren(id, [{ type: 'x' }])]
    const verbs = steering(engine, id)
      .slice(0, 8)
      .map((verb) => () => verb({}))
    for (const run of [...all, ...verbs]) {
      expect(await failure(run)).toMatchObject({ code: 'NOT_FOUND', message: `There is no job JB_${NOBODY}.` })
    }
  }
})

test('what is no list of jobs, and what is no job, is refused', async () => {
  const { engine } = await engineWith([])
  const untyped: Untyped = engine
  for (const list of [undefined, null, {}, 5, 'x', new Set()]) {
    await refused(() => untyped.enqueueMany(list), '')
    await refused(() => untyped.spawnChildren(NOBODY, list), '')
  }
  for (const job of [undefined, null, 5, 'x']) {
    await refused(() => untyped.enqueue(job), '')
    await refused(() => untyped.enqueueMany([{ type: 'x' }, job]), '1')
  }
})

test('fields of a job that mean nothing are refused, at every depth', async () => {
  const { engine } = await engineWith([])
  const untyped: Untyped = engine
  const bad = (job: object, ...paths: string[]) => refused(() => untyped.enqueue({ type: 'x', ...job }), ...paths)
  await bad({ maxRetires: 3, payload: {} }, 'maxRetires')
  await bad({ children: [{ type: 'y', prio: 1 }] }, 'children.0.prio')
  await bad({ timeouts: { waiting: '1h' } }, 'timeouts.waiting')
  await bad({ ephemeral: 'banana' }, 'ephemeral')
  await bad({ failureTolerance: [3] }, 'failureTolerance')
  for (const timeouts of [5, 'abc', [], true]) await bad({ timeouts }, 'timeouts')
  for (const runAt of ['2030-01-01', new Date(Number.NaN), new Date(-8.64e15)]) await bad({ runAt }, 'runAt')
  for (const field of ['type', 'key', 'queue', 'assigneeId']) {
    for (const value of ['', 5, 'a\0', 'a\ud800', 'x'.repeat(1001)]) await bad({ [field]: value }, field)
  }
  const error = (await failure(() => untyped.enqueue({ type: 'x', maxRetires: 3 }))) as Error
  expect(error.message).toContain('maxRetires: is not known')
  expect(error.message).toContain('maxRetries')
})

test('the first and the last instant that can be stored are', async () => {
  const { engine } = await engineWith([])
  const type = named('instants')
  for (const runAt of [new Date('0001-01-01T00:00:00Z'), new Date(0), new Date('9999-12-31T23:59:59.999Z')]) {
    const { id } = await engine.enqueue({ type, runAt })
    expect((await engine.job(id))?.runAt).toEqual(runAt)
  }
})

test('lists refuse filters, orders and places that make no sense', async () => {
  const { engine } = await engineWith([])
  const untyped: Untyped = engine
  for (const verb of ['orphans', 'stuckParents', 'listJobs', 'assignees']) {
    for (const page of [null, 5]) await refused(() => untyped[verb](page), 'options')
    await refused(() => untyped[verb]({ after: 5 }), 'after')
    await refused(() => untyped[verb]({ last: 2, before: {} }), 'before')
    for (const page of [{ first: 'x' }, { last: 0 }, { first: 1, last: 1 }, { after: 'x' }]) {
      expect(await failure(() => untyped[verb](page)), verb).toBeInstanceOf(EngineError)
    }
  }
  await refused(() => untyped.assignees({ statuses: ['bogus'] }), 'statuses.0')
  await refused(() => untyped.listJobs({ order: { field: 'id', direction: 'up' } }), 'order.direction', 'order.field')
  const filters: [object, string][] = [
    [{ ids: 5 }, 'ids'],
    [{ ids: [5] }, 'ids.0'],
    [{ treeId: 5 }, 'treeId'],
    [{ parentWave: 1e12 }, 'parentWave'],
    [{ roots: 'x' }, 'roots'],
    [{ states: ['bogus'] }, 'states.0'],
    [{ types: ['a\0'] }, 'types.0'],
    [{ queues: 'x' }, 'queues'],
    [{ key: 'a\0' }, 'key'],
    [{ assigneeIds: [null] }, 'assigneeIds.0'],
    [{ workerIds: [5] }, 'workerIds.0'],
    [{ errorCodes: ['bogus'] }, 'errorCodes.0'],
    [{ error: 'a\0' }, 'error'],
    [{ search: 5 }, 'search'],
    [{ createdAfter: 'x' }, 'createdAfter'],
    [{ createdBefore: new Date(-8.64e15) }, 'createdBefore'],
    [{ archived: 'x' }, 'archived'],
  ]
  for (const [filter, path] of filters) {
    await refused(() => untyped.listJobs({ filter }), `filter.${path}`)
    await refused(() => untyped.cancelJobs(filter), `filter.${path}`)
  }
  for (const filter of [undefined, null, 5, {}]) await refused(() => untyped.cancelJobs(filter), 'filter')
})

test('waiting and watching refuse times, cursors and filters that make no sense', async () => {
  const { engine } = await engineWith([])
  const untyped: Untyped = engine
  for (const timeoutMs of [-1, Number.NaN, 'x', null])
    await refused(() => untyped.waitFor(NOBODY, { timeoutMs }), 'timeoutMs')
  for (const options of [null, 5]) {
    await refused(() => untyped.waitFor(NOBODY, options), 'options')
    await refused(() => untyped.watchTree(NOBODY, options), 'options')
    await refused(() => untyped.watchStats(options), 'options')
    await refused(() => untyped.feed(options), 'options')
    await refused(() => untyped.feed.subscribe(options), 'options')
    await refused(() => untyped.feed.read(options), 'options')
    await refused(() => untyped.stop(options), 'options')
  }
  await refused(() => untyped.watchTree(NOBODY, { after: 5, signal: 5, heavy: 5 }), 'after', 'heavy', 'signal')
  await refused(() => untyped.watchStats({ signal: {} }), 'signal')
  await refused(() => untyped.watchStats({ interval: {} }), 'interval')
  for (const verb of ['subscribe', 'read']) {
    await refused(() => untyped.feed[verb]({ after: 5, filter: 5 }), 'after', 'filter')
    await refused(() => untyped.feed[verb]({ filter: { jobIds: 5, to: ['x'] } }), 'filter.jobIds', 'filter.to.0')
  }
  await refused(() => untyped.feed.cursorAt(5), 'snapshot')
  for (const grace of [-1, 'x', null]) await refused(() => untyped.stop({ grace }), 'grace')
  await refused(() => untyped.on('bogus', () => {}), 'event')
  await refused(() => untyped.on('fatal', 5), 'listener')
  expect(engine.running).toBe(true)
})

test('an engine, a contract and a definition are made of what they say', async () => {
  const make: Untyped = createEngine
  for (const options of [undefined, null, 5]) await refused(() => make(options), 'options')
  const connectionString = 'postgres://nowhere'
  for (const [, actor] of unusable) await refused(() => make({ connectionString, actor }), 'actor')
  await refused(() => make({ connectionString, jobs: [5] }), 'jobs.0')
  await refused(() => make({ connectionString, jobs: [null, {}] }), 'jobs.0', 'jobs.1')
  await refused(() => make({ connectionString, jobs: 'x', worker: true }), 'jobs')
  await refused(
    () => make({ connectionString, queues: [''], worker: 'x', pollOnly: 1 }),
    'pollOnly',
    'queues.0',
    'worker',
  )
  await refused(() => make({ connectionString, queues: 'mail', migrate: 'x' }), 'migrate', 'queues')
  await refused(() => make({ connectionString, retention: '5d', logger: 5 }), 'logger', 'retention')
  await refused(() => make({ connectionString, directConnectionString: 5 }), 'directConnectionString')
  const declare: Untyped = declareJob
  for (const source of [undefined, null, {}, { type: 5 }, { type: 'a\0' }, { type: 'x'.repeat(201) }]) {
    await refused(() => declare(source), 'type')
  }
  const define: Untyped = defineJob
  await refused(() => define(undefined, { run: () => {} }), 'type')
  for (const source of [undefined, null, 5]) await refused(() => define({ type: 'x' }, source), 'source')
  await refused(() => define({ type: 'x' }, { run: 5 }), 'run')
})
