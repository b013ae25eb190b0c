import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../support/until.ts'
import { type Api, startApi } from './api.ts'
import { runFuzz } from './fuzz/run-fuzz.ts'

// The short form of `npm run fuzz`, by the same seed each time.

let api: Api
beforeAll(async () => {
  api = await startApi()
})
afterAll(() => api.stop())

test('500 hostile and malformed requests: no fault, no leak, nothing left behind, and others go on', async () => {
  const tree = {
    type: 'root',
    children: [
      { type: 'leaf', payload: { a: 1 } },
      { type: 'leaf', children: [] },
    ],
  }
  const handles = await api.engine.enqueueMany([tree, { type: 'single' }, { type: 'single', key: 'k' }])
  const ids = handles.flatMap(({ id }) => [id, `JB_${id}`])
  const alive = await api.socket()
  alive.subscribe('alive', 'subscription { jobEvents(filter: { types: ["alive"] }) { events { jobId } } }')
  await alive.frame('alive', 'next')

  const report = await runFuzz({ url: api.server.url, requests: 500, seed: 4, ids })
  expect(report.faults).toEqual([])
  expect(api.log.filter(({ level }) => Number(level) >= 50)).toEqual([])
  // It went deep enough to prove something.
  expect(Object.keys(report.statuses)).toEqual(expect.arrayContaining(['200', '400', '403', '404', '415']))
  expect(Object.keys(report.codes)).toEqual(expect.arrayContaining(['BAD_REQUEST', 'LIMIT_EXCEEDED', 'FORBIDDEN']))
  expect(report.frames).toBeGreaterThan(100)

  const [handle] = await api.engine.enqueueMany([{ type: 'alive' }])
  await until(() => alive.next('alive').some((f) => f.data.jobEvents.events[0]?.jobId === `JB_${handle!.id}`))
  await until(() => api.engine.feed.stats().subscribers === 1, { timeout: 5000, what: 'only the living subscriber' })
  expect(alive.closed).toBeUndefined()
  expect((await api.run('{ viewer { name } }')).status).toBe(200)
})
