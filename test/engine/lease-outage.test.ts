import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { removeEmbeddedData } from '../../src/db/embedded/remove.ts'
import { type EmbeddedServer, startEmbeddedServer } from '../../src/db/embedded/server.ts'
import { migrate } from '../../src/db/migrate.ts'
import { createWatchedHeartbeat, type WatchedHeartbeat } from '../support/heartbeat.ts'
import { queryOnce } from '../support/query.ts'
import { until } from '../support/until.ts'

const INTERVAL = 200

let folder: string
let server: EmbeddedServer
let workers: WatchedHeartbeat[]
beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-outage-'))
  server = await startEmbeddedServer({ dataDir: folder, durable: false })
  const database = { connectionString: server.connectionString, schema: 'coppice' }
  await migrate(database)
  // Different intervals: the eager ones are back first, and must not judge the others by their own pace.
  const intervals = [INTERVAL, 2 * INTERVAL, 3 * INTERVAL]
  workers = await Promise.all(intervals.map((intervalMs) => createWatchedHeartbeat(database, { intervalMs })))
})
afterAll(async () => {
  await Promise.all(workers.map((worker) => worker.heartbeat.stop({ removeRow: true })))
  await server.stop()
  await removeEmbeddedData(folder)
  await rm(folder, { recursive: true, force: true })
})

async function reports(more: number): Promise<void> {
  const seen = workers.map((worker) => worker.reports.length)
  await until(() => workers.every((worker, index) => worker.reports.length >= seen[index]! + more), { timeout: 30_000 })
}

it('declares nobody dead when the database is away for longer than every lease (case 58)', async () => {
  await reports(3)
  for (let outage = 0; outage < 2; outage++) {
    await server.kill()
    const failures = workers.map((worker) => worker.failures.length)
    // Twice the longest limit.
    await delay(2 * 2 * 3 * INTERVAL)
    expect(workers.every((worker, index) => worker.failures.length > failures[index]!)).toBe(true)
    await server.restart()
    await reports(4)
    const rows = await queryOnce<{ dead_at: Date | null }>(
      server.connectionString,
      'select dead_at from coppice.worker',
    )
    expect(rows).toEqual([{ dead_at: null }, { dead_at: null }, { dead_at: null }])
    expect(workers.map((worker) => worker.lost)).toEqual([0, 0, 0])
  }
})
