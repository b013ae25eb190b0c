import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { Command } from 'commander'
import { removeEmbeddedData } from '../src/db/embedded/remove.ts'
import { startEmbeddedServer } from '../src/db/embedded/server.ts'
import { migrate } from '../src/db/migrate.ts'
import { isLossless, runLossless } from '../test/client/lossless/run-lossless.ts'

// npm run lossless -- --events 100000: writers, subscribers, and API processes that are killed, restarted and cut off at
// random. Prints what was lost, doubled or disordered, and fails at any.

const { events } = new Command()
  .option('--events <n>', 'how many events there are to be', Number, 100_000)
  .parse()
  .opts<{ events: number }>()

const folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-lossless-'))
const server = await startEmbeddedServer({ dataDir: folder })
try {
  const { connectionString } = server
  await migrate({ connectionString, schema: 'coppice' })
  const report = await runLossless({ connectionString, events, log: console.log })
  console.log(JSON.stringify(report, null, 2))
  if (!isLossless(report)) process.exitCode = 1
} finally {
  await server.stop()
  await removeEmbeddedData(folder)
  await rm(folder, { recursive: true, force: true })
}
