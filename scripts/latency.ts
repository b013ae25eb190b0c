import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { Command } from 'commander'
import { pino } from 'pino'
import { removeEmbeddedData } from '../src/db/embedded/remove.ts'
import { startEmbeddedServer } from '../src/db/embedded/server.ts'
import { createEngine } from '../src/index.ts'
import { measureIdle } from '../test/client/load/idle.ts'
import { measureLatency } from '../test/client/load/latency.ts'
import type { TransportName } from '../test/client/load/raw-subscription.ts'
import { startApiProcess } from '../test/support/api-process.ts'
import { compileProgram } from '../test/support/compiled.ts'

// npm run latency: how long it takes from a commit to the frame of each of so many subscribers, and what subscriptions
// cost on which nothing happens. A line of JSON for each; fails if a frame is missing. The API is a process of its own for
// each line; writer and subscribers are this one, so that one monotonic clock measures both ends.

const list = (text: string) => text.split(',').filter(Boolean).map(Number)
const { subscribers, commits, rate, idle, rest } = new Command()
  .option('--subscribers <list>', 'numbers of subscribers', list, [1, 100, 1000])
  .option('--commits <n>', 'commits for each number', Number, 200)
  .option('--rate <n>', 'commits a second', Number, 5)
  .option('--idle <n>', 'subscriptions on which nothing happens; 0 leaves that out', Number, 5000)
  .option('--rest <seconds>', 'for how long nothing happens on them', Number, 65)
  .parse()
  .opts<{ subscribers: number[]; commits: number; rate: number; idle: number; rest: number }>()

const LIMITS = ['--max-connections', '100000', '--max-subscriptions', '100000']

const folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-latency-'))
const server = await startEmbeddedServer({ dataDir: folder })
const { connectionString } = server
const writer = createEngine({
  connectionString,
  worker: false,
  logger: pino({ level: 'error' }, pino.destination(2)),
})
const program = await compileProgram(fileURLToPath(new URL('../src/cli.ts', import.meta.url)))

async function withApi(measure: (url: string, pid: number) => Promise<{ missing: number }>): Promise<void> {
  const api = await startApiProcess({ cli: program.cli, connectionString, flags: LIMITS })
  try {
    const report = await measure(`http://127.0.0.1:${api.port}/graphql`, api.pid)
    console.log(JSON.stringify(report))
    if (report.missing > 0) process.exitCode = 1
  } finally {
    await api.end()
  }
}

try {
  await writer.start()
  for (const count of subscribers) {
    await withApi((url) => measureLatency({ url, writer, subscribers: count, commits, rate }))
  }
  if (idle > 0) {
    for (const transport of ['webSocket', 'sse'] satisfies TransportName[]) {
      await withApi((url, pid) =>
        measureIdle({ url, pid, writer, transport, subscriptions: idle, restMs: rest * 1000 }),
      )
    }
  }
} finally {
  await writer.stop({ grace: 0 })
  await program.remove()
  await server.stop()
  await removeEmbeddedData(folder)
  await rm(folder, { recursive: true, force: true })
}
