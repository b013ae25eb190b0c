import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { Command } from 'commander'
import { removeEmbeddedData } from '../src/db/embedded/remove.ts'
import { startEmbeddedServer } from '../src/db/embedded/server.ts'
import { migrate } from '../src/db/migrate.ts'
import { runKillSoak } from '../test/fault/kill-soak.ts'

// npm run soak -- --kills 200: kills workers at random moments on a durable server of its own, and prints what it found.

const { kills, workers } = new Command()
  .option('--kills <n>', 'how often a worker is killed', Number, 200)
  .option('--workers <n>', 'worker processes at once', Number, 3)
  .parse()
  .opts<{ kills: number; workers: number }>()

const folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-soak-'))
const server = await startEmbeddedServer({ dataDir: folder, durable: true })
try {
  await migrate({ connectionString: server.connectionString, schema: 'coppice' })
  const report = await runKillSoak({ connectionString: server.connectionString, kills, workers, log: console.log })
  console.log(JSON.stringify(report, null, 2))
  if (report.violations.length > 0) process.exitCode = 1
} finally {
  await server.stop()
  await removeEmbeddedData(folder)
  await rm(folder, { recursive: true, force: true })
}
