import pg from 'pg'
import { pino } from 'pino'
import { createEngine } from '../../../src/index.ts'
import { limitedJobs } from '../limited-jobs.ts'

// A worker process for tests of concurrency limits: `limited-worker.ts CONNECTION_STRING`. It prints a line when it is
// ready, and ends when its input does.

const connectionString = process.argv[2]!
const pool = new pg.Pool({ connectionString, max: 5 })
const engine = createEngine({
  connectionString,
  jobs: limitedJobs(pool),
  concurrency: 12,
  poll: '200ms',
  migrate: false,
  logger: pino({ level: 'error' }, pino.destination(2)),
})
engine.on('fatal', () => process.exit(1))
await engine.start()
process.stdout.write('ready\n')
process.stdin.resume().on('end', async () => {
  await engine.stop()
  await pool.end()
  process.exit(0)
})
