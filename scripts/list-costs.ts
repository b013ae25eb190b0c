import { mkdtemp, readFile, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { Command } from 'commander'
import { openDatabase } from '../src/db/database.ts'
import { removeEmbeddedData } from '../src/db/embedded/remove.ts'
import { startEmbeddedServer } from '../src/db/embedded/server.ts'
import { migrate } from '../src/db/migrate.ts'
import { claimJobs } from '../src/engine/claim/claim.ts'
import { enqueueJobs } from '../src/engine/enqueue.ts'
import { prepareJobs } from '../src/engine/prepare.ts'
import { settle } from '../src/engine/settle/settle.ts'
import { fillWithJobs, LARGE } from './large-table.ts'

// npm run lists:cost: what the indexes of lists add to the life of a job: processor time of PostgreSQL (Linux only) and
// what is written to its log, of jobs that are enqueued 1,000 at a time, claimed and settled 500 at a time, beside others.

const options = new Command()
  .option('--jobs <n>', 'jobs of a round', Number, 30_000)
  .option('--others <n>', 'jobs that are there', Number, 300_000)
  .option('--rounds <n>', 'how often each is measured', Number, 3)
  .parse()
  .opts<{ jobs: number; others: number; rounds: number }>()

const TYPES = ['type-1', 'type-2', 'type-3', 'type-4', 'type-5']
/** Milliseconds of a tick of the processor's clock in /proc. */
const TICK_MS = 10

const folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-costs-'))
const server = await startEmbeddedServer({ dataDir: folder, durable: false })
// One connection, and so one process of the server whose time is taken.
const db = openDatabase({ connectionString: server.connectionString, poolSize: 1 })
const sql = async (text: string) => (await db.pool.query(text)).rows

async function processorMs(pid: number): Promise<number> {
  const fields = (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ')[1]!.split(' ')
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS
}

async function lifeOfJobs(): Promise<void> {
  for (let n = 0; n < options.jobs; n += 1000) {
    const list = Array.from({ length: 1000 }, (_, i) => ({ type: TYPES[i % TYPES.length]!, queue: i % 2 ? 'a' : 'b' }))
    await enqueueJobs(db, await prepareJobs(list), { actor: 'costs' })
  }
  const claim = { workerId: LARGE.worker, types: TYPES, queues: ['a', 'b'], limit: 500 }
  for (let jobs = await claimJobs(db, claim); jobs.length > 0; jobs = await claimJobs(db, claim)) {
    const items = jobs.map((job) => ({ job, outcome: { kind: 'completed', result: null } as const }))
    await settle(db, items, { actor: 'costs' })
  }
}

async function round(pid: number): Promise<{ micros: number; bytes: number }> {
  await sql('checkpoint')
  const [before] = await sql('select pg_current_wal_lsn() as lsn')
  const start = await processorMs(pid)
  await lifeOfJobs()
  const ms = (await processorMs(pid)) - start
  const [{ bytes }] = await sql(`select pg_wal_lsn_diff(pg_current_wal_lsn(), '${before.lsn}')::float8 as bytes`)
  return { micros: (ms * 1000) / options.jobs, bytes: bytes / options.jobs }
}

const median = (values: number[]) => Math.round(values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!)

try {
  await migrate({ connectionString: server.connectionString, schema: 'coppice' })
  await fillWithJobs(db, options.others)
  await sql(`insert into coppice.worker (id, host, pid, queues, types, concurrency, beat_interval, schema_version)
    values ('${LARGE.worker}', 'costs', 1, '{}', '{}', 10, 5000, 1)`)
  const [{ pid }] = await sql('select pg_backend_pid() as pid')
  const text = await readFile(new URL('../migrations/0007_list_indexes.sql', import.meta.url), 'utf8')
  const create = [...text.matchAll(/^create index[^;]*;/gm)].map(([statement]) => statement)
  const names = create.map((statement) => `coppice.${/^create index (\S+)/.exec(statement)![1]}`)
  const found: Record<string, { micros: number; bytes: number }[]> = { without: [], with: [] }
  for (let n = 0; n < options.rounds; n++) {
    for (const name of ['without', 'with'] as const) {
      await sql(`drop index if exists ${names.join(', ')}; set coppice.writer = 'engine';
        delete from coppice.job where queue in ('a', 'b'); reset coppice.writer`)
      await sql('vacuum analyze coppice.job')
      if (name === 'with') await sql(`set search_path = coppice; ${create.join(' ')} reset search_path`)
      found[name]!.push(await round(pid))
    }
  }
  for (const [name, rounds] of Object.entries(found)) {
    const micros = rounds.map((one) => one.micros)
    console.log(
      `${name.padEnd(8)} ${median(micros)} µs a job (${micros.map(Math.round).join(', ')}), ${median(rounds.map((one) => one.bytes))} bytes of log`,
    )
  }
} finally {
  await db.close()
  await server.stop()
  await removeEmbeddedData(folder)
  await rm(folder, { recursive: true, force: true })
}
