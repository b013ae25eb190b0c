import { createClient } from 'graphql-ws'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { claimJobs } from '../../src/engine/claim/claim.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { until } from '../support/until.ts'
import { addWorker } from '../support/verbs.ts'
import { type Api, startApi } from './api.ts'

let api: Api
let workerId: string
beforeAll(async () => {
  api = await startApi()
  workerId = await addWorker(api.test)
})
afterAll(() => api.stop())

const EVENTS = `subscription ($types: [String!], $after: String) {
  jobEvents(filter: { types: $types }, after: $after) {
    events { kind jobId version to job { id version state } } cursor caughtUp ended
  }
}`
const JOB =
  'subscription ($id: ID!, $keepOpen: Boolean! = false) { job(id: $id, keepOpen: $keepOpen) { id state version progress { current } result } }'

const subscribers = () => api.engine.feed.stats().subscribers

async function enqueue(type: string): Promise<string> {
  const [handle] = await api.engine.enqueueMany([{ type }])
  return handle!.id
}

async function claim(type: string) {
  const [job] = await claimJobs(api.engine.database, { workerId, types: [type], queues: null, limit: 1 })
  api.engine.doorbell.ring()
  return job!
}

async function complete(type: string, result: number): Promise<void> {
  const job = await claim(type)
  await settle(api.engine.database, [{ job, outcome: { kind: 'completed', result } }], { actor: `WK_${workerId}` })
  api.engine.doorbell.ring()
}

test('malformed, refused and throwing operations leave the others on the socket alive', async () => {
  const socket = await api.socket()
  socket.subscribe('alive', EVENTS, { types: ['alive'] })
  await socket.frame('alive', 'next')

  const refused: [string, unknown][] = [
    ['syntax', { query: 'subscription { jobEvents {' }],
    ['field', { query: 'subscription { nonsense }' }],
    ['empty', { query: '' }],
    ['two', { query: 'query A { viewer { name } } query B { viewer { name } }' }],
    ['name', { query: 'query A { viewer { name } }', operationName: 'C' }],
    ['missing', {}],
    ['number', { query: 5 }],
    ['payload', 'text'],
    ['variables', { query: EVENTS, variables: [1] }],
    ['extensions', { query: EVENTS, extensions: 'x' }],
  ]
  for (const [id, payload] of refused) socket.send({ id, type: 'subscribe', payload })
  for (const [id] of refused) {
    const { payload } = await socket.frame(id, 'error')
    expect(payload[0].extensions, id).toEqual({ code: 'BAD_REQUEST' })
    // The error is the last frame of its operation.
    expect(socket.of(id).map((frame) => frame.type)).toEqual(['error'])
  }

  const failing: [string, string, Record<string, unknown>][] = [
    ['variable', EVENTS, { types: 5 }],
    ['id', JOB, { id: 'garbage' }],
    ['cursor', EVENTS, { after: 'garbage' }],
    ['query', 'query { job(id: "garbage") { id } }', {}],
  ]
  for (const [id, query, variables] of failing) socket.subscribe(id, query, variables)
  for (const [id] of failing) {
    await socket.frame(id, 'complete')
    const [payload] = socket.next(id)
    expect(payload.errors[0].extensions, id).toEqual({ code: 'BAD_REQUEST' })
    expect(socket.of(id).at(-1)!.type).toBe('complete')
  }

  socket.subscribe('fine', 'query { viewer { name } }')
  await socket.frame('fine', 'complete')
  expect(socket.next('fine')).toEqual([{ data: { viewer: { name: 'anonymous' } } }])
  const id = await enqueue('alive')
  await until(() => socket.next('alive').some((payload) => payload.data.jobEvents.events[0]?.jobId === `JB_${id}`))
  expect(socket.closed).toBeUndefined()
  expect(api.log).toEqual([])
  socket.close()
})

test('a job in a later event is never older than the event', async () => {
  const socket = await api.socket()
  socket.subscribe('1', EVENTS, { types: ['fresh'] })
  await socket.frame('1', 'next')
  const events = () => socket.next('1').flatMap((payload) => payload.data.jobEvents.events)
  const id = await enqueue('fresh')
  await until(() => events().length === 1)
  await complete('fresh', 1)
  await until(() => events().length === 3, { what: 'three events' })
  expect(events().map((event) => event.jobId)).toEqual(Array(3).fill(`JB_${id}`))
  for (const event of events()) expect(event.job.version).toBeGreaterThanOrEqual(event.version)
  expect(events().at(-1)).toMatchObject({ to: 'COMPLETED', job: { state: 'COMPLETED', version: 3 } })
  socket.close()
})

test('a job is told as it is, as it changes, and when it has ended; then the stream ends', async () => {
  const socket = await api.socket()
  const id = await enqueue('watched')
  socket.subscribe('1', JOB, { id })
  await socket.frame('1', 'next')
  expect(socket.next('1')[0].data.job).toEqual({
    id: `JB_${id}`,
    state: 'QUEUED',
    version: 1,
    progress: null,
    result: null,
  })
  await complete('watched', 42)
  await socket.frame('1', 'complete')
  expect(socket.next('1').at(-1).data.job).toMatchObject({ state: 'COMPLETED', result: 42, version: 3 })

  // A job that has ended already, and one that never was (cases.md: 49).
  socket.subscribe('2', JOB, { id })
  await socket.frame('2', 'complete')
  expect(socket.next('2').map((payload) => payload.data.job.state)).toEqual(['COMPLETED'])
  socket.subscribe('3', JOB, { id: 'JB_01890000-0000-7000-8000-00000000ffff' })
  await socket.frame('3', 'complete')
  expect(socket.next('3')).toEqual([{ data: { job: null } }])

  // Kept open until it is deleted.
  socket.subscribe('4', JOB, { id, keepOpen: true })
  await socket.frame('4', 'next')
  expect(socket.of('4').map((frame) => frame.type)).toEqual(['next'])
  await api.engine.deleteJob(id)
  await socket.frame('4', 'complete')
  expect(socket.next('4').at(-1)).toEqual({ data: { job: null } })
  socket.close()
})

test('changes of a job are coalesced to four a second, the last one always told', async () => {
  const socket = await api.socket()
  const id = await enqueue('busy')
  socket.subscribe('1', JOB, { id })
  await socket.frame('1', 'next')
  const started = performance.now()
  for (let n = 1; n <= 40; n++) {
    await api.test.pool.query(
      `with changed as (
         update coppice.job set progress = jsonb_build_object('current', $2::int), version = version + 1
         where id = $1 returning *)
       insert into coppice.job_event (kind, job_id, tree_id, type, "from", "to", phase, wave, attempt, version, actor)
       select 'progress', id, tree_id, type, state, state, phase, wave, attempt, version, 'test' from changed`,
      [id, n],
    )
    api.engine.doorbell.ring()
  }
  await until(() => socket.next('1').at(-1).data.job.progress?.current === 40, { what: 'the last progress' })
  const seconds = (performance.now() - started) / 1000
  const frames = socket.next('1').length
  expect(frames).toBeGreaterThanOrEqual(2)
  expect(frames).toBeLessThanOrEqual(2 + Math.ceil(seconds * 4))
  const versions = socket.next('1').map((payload) => payload.data.job.version)
  expect(versions).toEqual([...versions].sort((a, b) => a - b))
  expect(new Set(versions).size).toBe(versions.length)
  socket.close()
})

test('leaving a subscription frees it at once: by complete, by closing the socket, by aborting SSE', async () => {
  const gone = () => until(() => subscribers() === 0, { interval: 2, what: 'subscriber freed' })
  /** Milliseconds from leaving until nothing is left. */
  const freed = async (leave: () => void) => {
    expect(subscribers()).toBe(1)
    const started = performance.now()
    leave()
    await gone()
    return performance.now() - started
  }
  await gone()
  const kept = await enqueue('left')
  for (const [query, variables] of [
    [EVENTS, {}],
    [JOB, { id: kept, keepOpen: true }],
  ] as const) {
    const times = { complete: [] as number[], close: [] as number[], abort: [] as number[] }
    // Several rounds, since a busy machine may hold one of them up.
    for (let round = 0; round < 5; round++) {
      const socket = await api.socket()
      socket.subscribe('1', query, variables)
      await socket.frame('1', 'next')
      times.complete.push(await freed(() => socket.send({ id: '1', type: 'complete' })))
      socket.subscribe('2', query, variables)
      await socket.frame('2', 'next')
      times.close.push(await freed(() => socket.close()))
      const stream = await api.stream(query, variables)
      await until(() => stream.next().length > 0)
      times.abort.push(await freed(() => stream.close()))
    }
    for (const [how, all] of Object.entries(times)) expect(Math.min(...all), how).toBeLessThan(100)
  }
})

test('a client that leaves in the middle of subscribing leaves nothing behind', async () => {
  let most = 0
  for (let round = 0; round < 40; round++) {
    const socket = await api.socket()
    const abort = new AbortController()
    for (let n = 0; n < 5; n++) {
      socket.subscribe(String(n), EVENTS)
      fetch(`${api.server.url}/graphql`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
        body: JSON.stringify({ query: EVENTS }),
        signal: abort.signal,
      }).catch(() => {})
    }
    // Ends at another moment each time.
    for (let turn = 0; turn < round % 20; turn++) {
      await new Promise(setImmediate)
      most = Math.max(most, subscribers())
    }
    socket.close()
    abort.abort()
  }
  expect(most).toBeGreaterThan(0)
  await until(() => subscribers() === 0, { timeout: 5000, what: 'all freed' })
})

test('many subscriptions on many sockets: each gets each event, and nobody warns', async () => {
  const warnings: Error[] = []
  const onWarning = (warning: Error) => warnings.push(warning)
  process.on('warning', onWarning)
  const sockets = await Promise.all(Array.from({ length: 8 }, () => api.socket()))
  for (const socket of sockets) for (let n = 0; n < 5; n++) socket.subscribe(`${n}`, EVENTS, { types: ['many'] })
  const all = sockets.flatMap((socket) => Array.from({ length: 5 }, (_, n) => () => socket.next(`${n}`)))
  await until(() => all.every((frames) => frames().length > 0), { what: 'all first frames' })
  const ids: string[] = []
  for (let n = 0; n < 5; n++) ids.push(`JB_${await enqueue('many')}`)
  for (const frames of all) {
    const seen = () =>
      frames().flatMap((payload) => payload.data.jobEvents.events.map((e: { jobId: string }) => e.jobId))
    await until(() => seen().length >= ids.length, { what: 'all events' })
    expect(seen()).toEqual(ids)
  }
  process.off('warning', onWarning)
  expect(warnings).toEqual([])
  for (const socket of sockets) socket.close()
})

test('the graphql-ws client works as it is: queries, mutations, subscriptions', async () => {
  const client = createClient({ url: `${api.server.url.replace('http', 'ws')}/graphql`, webSocketImpl: WebSocket })
  const first = client.iterate<{ enqueueJob: { job: { id: string } } }>({
    query: 'mutation { enqueueJob(input: { type: "lib" }) { ... on EnqueueJobSuccess { job { id } } } }',
  })
  const enqueued = (await first.next()).value
  const id = enqueued.data.enqueueJob.job.id as string
  const frames = client.iterate<{ job: { state: string } }>({ query: JOB, variables: { id } })
  expect((await frames.next()).value.data.job).toMatchObject({ id, state: 'QUEUED' })
  await complete('lib', 7)
  const states: string[] = []
  for await (const frame of frames) states.push(frame.data!.job.state)
  expect(states.at(-1)).toBe('COMPLETED')
  await client.dispose()
})

test('SSE: frames, then complete; a subscription that fails says so', async () => {
  const id = await enqueue('sse')
  const stream = await api.stream(JOB, { id })
  expect(stream.response.headers.get('content-type')).toContain('text/event-stream')
  await until(() => stream.next().length > 0)
  await complete('sse', 3)
  await until(() => stream.ended, { what: 'the end of the stream' })
  expect(stream.next().at(-1).data.job).toMatchObject({ state: 'COMPLETED', result: 3 })
  expect(stream.events.at(-1)!.event).toBe('complete')

  const wrong = await api.stream(EVENTS, { after: 'garbage' })
  await until(() => wrong.ended)
  expect(wrong.next()[0].errors[0].extensions).toEqual({ code: 'BAD_REQUEST' })
})
