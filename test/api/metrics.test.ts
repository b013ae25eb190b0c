import { request } from 'node:http'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { defineJob } from '../../src/index.ts'
import { type Api, startApi } from './api.ts'

const leaf = defineJob({ type: 'leaf' }, { run: () => null })
const pair = defineJob({ type: 'pair' }, { ingest: (ctx) => ctx.spawn([leaf.with(), leaf.with()]).then(() => {}) })

let api: Api
beforeAll(async () => {
  api = await startApi({ jobs: [leaf, pair] })
})
afterAll(() => api.stop())

async function figures(): Promise<Map<string, number>> {
  const answer = await fetch(`${api.server.url}/metrics`)
  expect(answer.status).toBe(200)
  expect(answer.headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/)
  const lines = (await answer.text()).split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  return new Map(lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ')))]))
}

test('/metrics has the figures of the engine, in the form of Prometheus', async () => {
  const before = await figures()
  expect(before.get('coppice_parent_wake_emitted_total{source="edge"}') ?? 0).toBe(0)
  for (const name of [
    'coppice_parent_wake_candidates_total',
    'coppice_parent_wake_deduplicated_total',
    'coppice_parent_wake_assignee_unresolved_total',
    'coppice_parent_wake_superseded_total',
    'coppice_parent_wake_drift_repaired_total',
    'coppice_parent_stuck',
    'coppice_parent_oldest_waiting_seconds',
    'coppice_parent_audit_round_seconds',
    'coppice_reconciler_tick_seconds_count',
  ]) {
    expect(before.has(name), name).toBe(true)
  }
  await api.engine.waitFor(await api.engine.enqueue(pair.with()), { timeoutMs: 30_000 })
  expect((await figures()).get('coppice_parent_wake_emitted_total{source="edge"}')).toBe(1)
})

test('it is for this machine only: a page of another site that got here by DNS learns nothing', async () => {
  const status = await new Promise((resolve, reject) => {
    const outgoing = request(`${api.server.url}/metrics`, { headers: { host: 'evil.example' } }, (incoming) => {
      incoming.resume()
      resolve(incoming.statusCode)
    })
    outgoing.on('error', reject)
    outgoing.end()
  })
  expect(status).toBe(403)
})
