import { afterAll, beforeAll, expect, test } from 'vitest'
import { createEngine } from '../../src/index.ts'
import { createServer } from '../../src/server/server.ts'
import { until } from '../support/until.ts'
import { type Api, silent, startApi } from './api.ts'
import { RawSocket } from './raw-socket.ts'

let api: Api
beforeAll(async () => {
  api = await startApi()
})
afterAll(() => api.stop())

const TREE = `subscription ($id: ID!, $after: String) {
  jobTree(id: $id, after: $after) {
    reset jobs { id version state depth openChildren } removed counts { total open cancelled } cursor caughtUp ended
  }
}`

const subscribers = () => api.engine.feed.stats().subscribers

interface TreeFrame {
  reset: boolean
  jobs: { id: string; version: number; state: string; depth: number; openChildren: number }[]
  removed: string[]
  counts: { total: number; open: number; cancelled: number }
  cursor: string
  caughtUp: boolean
  ended: string | null
}

const framesOf = (payloads: { data: { jobTree: TreeFrame } }[]) => payloads.map((payload) => payload.data.jobTree)

async function enqueueTree(children: number): Promise<string> {
  return (await api.engine.enqueue({ type: 'root', children: Array(children).fill({ type: 'leaf' }) })).id
}

/** What the frames make of a tree. */
function apply(frames: TreeFrame[]): Map<string, TreeFrame['jobs'][number]> {
  const jobs = new Map<string, TreeFrame['jobs'][number]>()
  for (const frame of frames) {
    if (frame.reset) jobs.clear()
    for (const job of frame.jobs) jobs.set(job.id, job)
    for (const id of frame.removed) jobs.delete(id)
  }
  return jobs
}

async function readFresh(id: string) {
  const query = `query ($id: ID!) {
    jobTree(id: $id) { counts { total open cancelled } cursor nodes { nodes { id version state depth openChildren } } }
  }`
  const { jobTree } = await api.ask(query, { id })
  return {
    counts: jobTree.counts,
    cursor: jobTree.cursor,
    jobs: new Map(jobTree.nodes.nodes.map((job: { id: string }) => [job.id, job])),
  }
}

test.each(['WebSocket', 'SSE'])('a tree is told in frames that make what a query reads, over %s', async (how) => {
  const id = await enqueueTree(5)
  let frames: () => TreeFrame[]
  let leave: () => void
  if (how === 'SSE') {
    const stream = await api.stream(TREE, { id })
    frames = () => framesOf(stream.next())
    leave = () => stream.close()
  } else {
    const socket = await api.socket()
    socket.subscribe('1', TREE, { id })
    frames = () => framesOf(socket.next('1'))
    leave = () => socket.close()
  }
  await until(() => frames().length === 1)
  expect(frames()[0]).toMatchObject({
    reset: true,
    removed: [],
    counts: { total: 6, open: 6 },
    caughtUp: true,
    ended: null,
  })
  expect(frames()[0]!.jobs[0]).toMatchObject({ id: `JB_${id}`, depth: 0, openChildren: 5 })
  const [, one, two, three] = frames()[0]!.jobs
  await api.engine.cancelJob(one!.id)
  await api.engine.archiveJob(two!.id)
  await api.engine.deleteJob(three!.id)
  await api.engine.spawnChildren(id, [{ type: 'leaf' }])
  const fresh = await readFresh(id)
  await until(() => JSON.stringify([...apply(frames())].sort()) === JSON.stringify([...fresh.jobs].sort()))
  await until(() => JSON.stringify(frames().at(-1)!.counts) === JSON.stringify(fresh.counts))
  expect(frames().flatMap((frame) => frame.removed)).toEqual(expect.arrayContaining([two!.id, three!.id]))
  expect(
    frames()
      .slice(1)
      .every((frame) => !frame.reset),
  ).toBe(true)
  // The cursor of the query's snapshot leads into the same stream.
  const socket = await api.socket()
  socket.subscribe('2', TREE, { id, after: fresh.cursor })
  await socket.frame('2', 'next')
  expect(framesOf(socket.next('2'))[0]).toMatchObject({ reset: false, jobs: [], caughtUp: true, counts: fresh.counts })
  socket.close()
  leave()
  await until(() => subscribers() === 0)
})

test('a frame shows what its jobs lead to as it is then: nothing that was read for an earlier one', async () => {
  const id = await enqueueTree(2)
  const socket = await api.socket()
  const query = `subscription ($id: ID!) {
    jobTree(id: $id) { caughtUp jobs { id state parent { openChildren childCounts { open cancelled } } children { nodes { state } } events { nodes { kind } } } }
  }`
  socket.subscribe('1', query, { id })
  await socket.frame('1', 'next')
  const jobs = () => socket.next('1').flatMap((payload) => payload.data.jobTree.jobs)
  const leaves = jobs().filter((job) => job.parent !== null)
  expect(leaves.map((job) => job.parent.openChildren)).toEqual([2, 2])
  for (const [n, leaf] of leaves.entries()) {
    await api.engine.cancelJob(leaf.id)
    const told = await until(() => jobs().findLast((job) => job.id === leaf.id && job.state === 'CANCELLED'))
    expect(told.parent).toMatchObject({ openChildren: 1 - n, childCounts: { open: 1 - n, cancelled: n + 1 } })
    expect(told.events.nodes).toHaveLength(2)
  }
  const root = await until(() => jobs().findLast((job) => job.id === `JB_${id}` && job.state === 'QUEUED'))
  expect(root.children.nodes.map((child: { state: string }) => child.state)).toEqual(['CANCELLED', 'CANCELLED'])
  socket.close()
})

test('what makes no sense is refused, and leaves the others on the socket alone', async () => {
  const id = await enqueueTree(1)
  const socket = await api.socket()
  socket.subscribe('alive', TREE, { id })
  await socket.frame('alive', 'next')
  const { cursor } = framesOf(socket.next('alive'))[0]!
  for (const [name, variables, code] of [
    ['id', { id: 'garbage' }, 'BAD_REQUEST'],
    ['cursor', { id, after: 'garbage' }, 'BAD_REQUEST'],
    ['position', { id, after: `${cursor}.garbage` }, 'BAD_REQUEST'],
    ['nobody', { id: '01890000-0000-7000-8000-00000000ffff' }, 'NOT_FOUND'],
  ] as const) {
    socket.subscribe(name, TREE, variables)
    await socket.frame(name, 'complete')
    expect(socket.next(name)[0].errors[0].extensions, name).toEqual({ code })
  }
  socket.subscribe('fast', 'subscription { stats(interval: "100ms") { at } }')
  await socket.frame('fast', 'complete')
  expect(socket.next('fast')[0].errors[0].extensions).toEqual({ code: 'BAD_REQUEST' })
  await api.engine.cancelJob(id)
  await until(() => framesOf(socket.next('alive')).at(-1)!.counts.cancelled === 2)
  expect(api.log).toEqual([])
  socket.close()
})

test('leaving a tree or the figures frees everything within 100 ms: by complete, by closing, by aborting', async () => {
  const id = await enqueueTree(3)
  await until(() => subscribers() === 0)
  const times = { complete: [] as number[], close: [] as number[], abort: [] as number[] }
  const freed = async (leave: () => void) => {
    await until(() => subscribers() === 1)
    const started = performance.now()
    leave()
    await until(() => subscribers() === 0, { interval: 2 })
    return performance.now() - started
  }
  for (let round = 0; round < 3; round++) {
    const socket = await api.socket()
    socket.subscribe('1', TREE, { id })
    times.complete.push(await freed(() => socket.send({ id: '1', type: 'complete' })))
    socket.subscribe('2', TREE, { id })
    times.close.push(await freed(() => socket.close()))
    const stream = await api.stream(TREE, { id })
    times.abort.push(await freed(() => stream.close()))
  }
  for (const [how, all] of Object.entries(times)) expect(Math.min(...all), how).toBeLessThan(100)
  // And in the midst of subscribing, at another moment each time.
  for (let round = 0; round < 20; round++) {
    const socket = await api.socket()
    for (let n = 0; n < 3; n++) socket.subscribe(String(n), TREE, { id })
    for (let turn = 0; turn < round * 3; turn++) await new Promise(setImmediate)
    socket.close()
  }
  await until(() => subscribers() === 0)
})

test('a server that stops gives a last frame, from which another process goes on', async () => {
  const id = await enqueueTree(2)
  const settings = { connectionString: api.test.connectionString, worker: false, logger: silent() }
  const engine = createEngine(settings)
  await engine.start()
  const server = await createServer({ engine, config: { host: '127.0.0.1', port: 0 }, logger: silent() })
  const socket = await RawSocket.open(`${server.url.replace('http', 'ws')}/graphql`)
  await socket.init()
  socket.subscribe('1', TREE, { id })
  await socket.frame('1', 'next')
  await server.stop()
  const closed = await until(() => socket.closed)
  expect(closed.code).toBe(1012)
  const frames = framesOf(socket.next('1'))
  const last = frames.at(-1)!
  expect(last).toMatchObject({ reset: false, jobs: [], removed: [], ended: 'SHUTDOWN', counts: { total: 3 } })
  expect(socket.of('1').every((frame) => frame.type === 'next')).toBe(true)
  await engine.stop()

  const child = frames[0]!.jobs[1]!
  await api.engine.cancelJob(child.id)
  const next = await api.socket()
  next.subscribe('1', TREE, { id, after: last.cursor })
  await until(() => framesOf(next.next('1')).some((frame) => frame.jobs.some((job) => job.id === child.id)))
  const fresh = await readFresh(id)
  await until(
    () =>
      JSON.stringify([...apply([...frames, ...framesOf(next.next('1'))])].sort()) ===
      JSON.stringify([...fresh.jobs].sort()),
  )
  next.close()
})

test('the installation in numbers, by query and again and again', async () => {
  const FIELDS = `at jobs { total open queued completed } oldestDueAt oldestWaitingAt
    wakes { candidates emitted edge: emitted(source: EDGE) deduplicated assigneeUnresolved superseded driftRepaired stuck lastTickAt lastTick }
    feed { listening reconnects lag heldUpBy subscribers ringMisses }`
  const { stats } = await api.ask(`{ stats { ${FIELDS} } }`)
  expect(stats.wakes).toMatchObject({
    emitted: expect.stringMatching(/^\d+$/),
    edge: expect.stringMatching(/^\d+$/),
    stuck: 0,
  })
  expect(stats.feed).toMatchObject({ listening: true, reconnects: '0', ringMisses: '0' })
  expect(stats.jobs.open).toBeGreaterThan(0)
  const sockets = await Promise.all([api.socket(), api.socket()])
  for (const socket of sockets) socket.subscribe('1', `subscription { stats(interval: "500ms") { ${FIELDS} } }`)
  const timesOf = (socket: RawSocket) => new Set<string>(socket.next('1').map((payload) => payload.data.stats.at))
  for (const socket of sockets) await until(() => timesOf(socket).size >= 3)
  const [one, two] = sockets.map((socket) => [...timesOf(socket)])
  expect(two!.filter((at) => one!.includes(at)).length).toBeGreaterThan(1)
  for (const socket of sockets) socket.close()
})
