import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createEngine } from '../../src/index.ts'
import { until } from '../support/until.ts'
import { type Api, silent, startApi } from './api.ts'

let api: Api
/** Reads of the event log, and ticks of the maintenance loop beside them. */
const ran = { reads: 0, ticks: 0 }
const { query } = pg.Client.prototype

beforeAll(async () => {
  api = await startApi()
  // biome-ignore lint/suspicious/noExplicitAny: every form of the call is handed on as it is.
  pg.Client.prototype.query = function (this: pg.Client, ...args: any[]): any {
    const [first] = args
    const text = String(typeof first === 'string' ? first : (first?.text ?? ''))
    if (/\/\* coppice:feed\.(window|rest) \*\//.test(text)) ran.reads++
    else if (text.includes('/* coppice:reconcile.')) ran.ticks++
    return (query as (...all: unknown[]) => unknown).apply(this, args)
  }
})
afterAll(async () => {
  pg.Client.prototype.query = query
  await api.stop()
})

/** The reads of the log while the maintenance loop goes on for some ticks. */
async function readsMeanwhile(act: () => Promise<unknown> = async () => {}): Promise<number> {
  const { reads, ticks } = ran
  await act()
  await until(() => ran.ticks > ticks + 3, { timeout: 30_000, what: 'ticks of the maintenance loop' })
  return ran.reads - reads
}

test('nobody subscribed: nothing is read, whatever rings; one who is quiet costs one read at each safety poll', async () => {
  const { connectionString } = api.test
  const other = createEngine({ connectionString, worker: false, logger: silent() })
  await other.start()
  try {
    const enqueue = () => other.enqueueMany([{ type: 'elsewhere' }, { type: 'elsewhere' }])
    expect(await readsMeanwhile(enqueue)).toBe(0)

    const socket = await api.socket()
    socket.subscribe('1', 'subscription { jobEvents(filter: { types: ["none"] }) { events { id } cursor } }')
    await socket.frame('1', 'next')
    const begun = performance.now()
    const before = ran.reads
    await until(() => ran.reads === before + 3, { timeout: 30_000, what: 'three polls' })
    // Each comes two seconds after the last one; the first may be that of the subscription itself.
    expect(performance.now() - begun).toBeGreaterThan(3_500)
    const rung = ran.reads
    await enqueue()
    await until(() => ran.reads > rung, { timeout: 1_500, what: 'a read for the ring' })

    socket.send({ id: '1', type: 'complete' })
    await until(() => api.engine.feed.stats().subscribers === 0)
    expect(await readsMeanwhile(enqueue)).toBe(0)
  } finally {
    await other.stop({ grace: 0 })
  }
})
