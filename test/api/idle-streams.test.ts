import http from 'node:http'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../support/until.ts'
import { type Api, startApi } from './api.ts'

let api: Api
beforeAll(async () => {
  // Far shorter than the streams are idle: no limit on requests may end them.
  api = await startApi({ serving: { limits: { requestTimeoutMs: 500 } } })
})
afterAll(() => api.stop())

const EVENTS = 'subscription { jobEvents(filter: { types: ["after-rest"] }) { events { jobId } cursor } }'
/** Node ends connections that it takes for idle after five seconds. */
const REST_MS = 7_000

test('an idle stream is kept alive, longer than any request may take, and then told of an event', async () => {
  const stream = await listen(`${api.server.url}/graphql`)
  const socket = await api.socket()
  socket.subscribe('1', EVENTS)
  await until(() => stream.text.includes('event: next'), { what: 'the first frame' })
  await socket.frame('1', 'next')
  const begun = performance.now()
  const before = stream.comments()
  await until(() => performance.now() - begun > REST_MS, { timeout: 2 * REST_MS, interval: 200 })
  // What proxies in between see: something every now and then.
  expect(stream.comments()).toBeGreaterThan(before)
  expect(stream.ended).toBe(false)

  const { id } = await api.engine.enqueue({ type: 'after-rest' })
  await until(() => stream.text.includes(`JB_${id}`), { what: 'the event over SSE' })
  await until(() => socket.next('1').some((frame) => frame.data.jobEvents.events[0]?.jobId === `JB_${id}`))
  expect(stream.ended).toBe(false)
  expect(socket.closed).toBeUndefined()
  stream.close()
})

/** A stream as it is on the wire. */
async function listen(url: string) {
  const stream = {
    text: '',
    ended: false,
    comments: () => stream.text.split('\n').filter((line) => line.startsWith(':')).length,
    close: () => request.destroy(),
  }
  const request = http.request(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'text/event-stream' },
  })
  request.on('error', () => {})
  request.on('response', (response) => {
    response.setEncoding('utf8').on('data', (text: string) => {
      stream.text += text
    })
    response.on('close', () => {
      stream.ended = true
    })
  })
  request.end(JSON.stringify({ query: EVENTS }))
  return stream
}
