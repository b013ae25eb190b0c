import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createEngine, type Engine } from '../../src/index.ts'
import { silent } from '../api/api.ts'
import { type ApiProcess, startApiProcess } from '../support/api-process.ts'
import { type CompiledProgram, compileProgram } from '../support/compiled.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { measureIdle } from './load/idle.ts'
import { measureLatency } from './load/latency.ts'

// `npm run latency` in small: the figures are the script's, that they can be trusted is shown here.

let database: TestDatabase
let program: CompiledProgram
let api: ApiProcess
let writer: Engine
let url: string

beforeAll(async () => {
  database = await createTestDatabase()
  const { connectionString } = database
  program = await compileProgram(fileURLToPath(new URL('../../src/cli.ts', import.meta.url)))
  api = await startApiProcess({ cli: program.cli, connectionString, flags: ['--max-connections', '20'] })
  url = `http://127.0.0.1:${api.port}/graphql`
  writer = createEngine({ connectionString, worker: false, logger: silent() })
  await writer.start()
})

afterAll(async () => {
  await writer?.stop({ grace: 0 })
  await api?.end()
  await program?.remove()
  await database?.drop()
})

test('a frame of each commit reaches each subscriber, and the time is taken', async () => {
  const report = await measureLatency({ url, writer, subscribers: 6, commits: 5, rate: 50 })
  expect(report).toMatchObject({ subscribers: 6, commits: 5, frames: 30, missing: 0 })
  expect(report.p50Ms).toBeGreaterThanOrEqual(0)
  expect(report.p99Ms).toBeGreaterThanOrEqual(report.p50Ms)
  expect(report.maxMs).toBeGreaterThan(0)
})

test.each(['webSocket', 'sse'] as const)('idle subscriptions over %s are all there after a rest', async (transport) => {
  const report = await measureIdle({ url, pid: api.pid, writer, subscriptions: 10, transport, restMs: 300 })
  expect(report).toMatchObject({ subscriptions: 10, transport, missing: 0 })
  expect(report.rssAfterMb).toBeGreaterThan(20)
  expect(report.cpuPercent).toBeLessThan(1000)
})

test('more than the process takes are not counted as there', async () => {
  const idle = measureIdle({ url, pid: api.pid, writer, subscriptions: 25, transport: 'sse', restMs: 100 })
  await expect(idle).rejects.toThrow()
})
