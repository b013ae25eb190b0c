import { appendFile, writeFile } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { Counter, chunks, median, now, round } from './measure.mjs'
import { open } from './peers/coppice.mjs'
import { ENTRIES, settingsFor } from './peers/index.mjs'
import { startServers } from './servers.mjs'

// npm run after-1m: jobs a second in a database that holds 1,000,000 finished jobs with their whole history, against an
// empty one, in turns on one server. The finished jobs were run by the engine like any others.

const TARGET = 0.8

const { values } = parseArgs({
  options: {
    finished: { type: 'string', default: '1000000' },
    jobs: { type: 'string', default: '20000' },
    rounds: { type: 'string', default: '3' },
    out: { type: 'string', default: 'after-1m.jsonl' },
  },
})
const finished = Number(values.finished)
const jobs = Number(values.jobs)
const settings = settingsFor(
  ENTRIES.find(({ name }) => name === 'coppice'),
  'W1',
)

/** Enqueues `count` flat jobs, then runs them; jobs a second of both. */
async function run(postgres, count) {
  const done = new Counter()
  const peer = await open({ postgres }, settings, { flat: () => done.add() })
  const enqueueing = now()
  for (const numbers of chunks(count, 1000)) await peer.addFlat(numbers)
  const working = now()
  await peer.work()
  await done.reaches(count)
  await peer.committed()
  const ended = now()
  await peer.close()
  const perSecond = (ms) => Math.round(count / (ms / 1000))
  return { enqueuedPerSecond: perSecond(working - enqueueing), jobsPerSecond: perSecond(ended - working) }
}

async function sizeOf(connectionString) {
  const client = new pg.Client({ connectionString })
  await client.connect()
  const { rows } = await client.query(`
    select (select count(*)::int from coppice.job where state = 'completed') as completed,
      (select count(*)::int from coppice.job_event) as events,
      pg_size_pretty(pg_database_size(current_database())) as size`)
  await client.end()
  return rows[0]
}

async function vacuum(connectionString) {
  const client = new pg.Client({ connectionString })
  await client.connect()
  await client.query('vacuum analyze')
  await client.end()
}

const servers = await startServers({ redis: false })
try {
  const full = await servers.freshDatabase('bench_full')
  await writeFile(values.out, '')
  const note = async (line) => {
    await appendFile(values.out, `${JSON.stringify(line)}\n`)
    console.log(JSON.stringify(line))
  }
  const filling = now()
  // In parts, so that the queue is about as long as it is when measured.
  for (const part of chunks(finished, jobs)) await run(full, part.length)
  await note({ filled: await sizeOf(full), seconds: round((now() - filling) / 1000) })
  // Those jobs ended long ago: what autovacuum has to do after them is done, and does not run beside what is measured.
  await vacuum(full)
  const figures = { empty: [], full: [] }
  for (let round = 1; round <= Number(values.rounds); round++) {
    for (const which of ['empty', 'full']) {
      const database = which === 'full' ? full : await servers.freshDatabase('bench_empty')
      await servers.checkpoint()
      const result = await run(database, jobs)
      figures[which].push(result.jobsPerSecond)
      await note({ round, database: which, ...result })
    }
  }
  const ratio = round(median(figures.full) / median(figures.empty), 2)
  await note({ finished, ratio, target: TARGET, met: ratio >= TARGET })
} finally {
  await servers.stop()
}
