import { Command } from 'commander'
import { runSoak } from '../test/fault/soak.ts'
import { startSoakServer } from '../test/fault/soak-server.ts'

// npm run soak -- --minutes 5: kills workers and crashes the server at random moments, and prints what it found. It goes on
// until everything that is asked for is reached: minutes, trees, kills; one minute if nothing is. Ctrl-C: that is enough,
// what runs is run to its end and judged.

interface Options {
  minutes?: number
  trees?: number
  kills?: number
  workers: number
  crashes: boolean
}

const options = new Command()
  .option(
    '--minutes <n>',
    'how long trees are enqueued and workers killed (default: 1, if nothing else is given)',
    Number,
  )
  .option('--trees <n>', 'how many trees are to be run', Number)
  .option('--kills <n>', 'how often a worker is to be killed', Number)
  .option('--workers <n>', 'worker processes at once', Number, 3)
  .option('--no-crashes', 'leave the server alone')
  .parse()
  .opts<Options>()

const { trees, kills } = options
const minutes = options.minutes ?? (trees === undefined && kills === undefined ? 1 : undefined)
const enough = new AbortController()
process.once('SIGINT', () => enough.abort())
const server = await startSoakServer()
try {
  const report = await runSoak({
    connectionString: server.connectionString,
    workers: options.workers,
    until: {
      ...(trees !== undefined && { trees }),
      ...(kills !== undefined && { kills }),
      ...(minutes !== undefined && { ms: minutes * 60_000 }),
    },
    ...(options.crashes && { crash: server.crash }),
    signal: enough.signal,
    log: console.log,
  })
  console.log(JSON.stringify(report, null, 2))
  if (report.violations.length > 0) process.exitCode = 1
} finally {
  await server.remove()
}
