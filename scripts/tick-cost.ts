import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { Command } from 'commander'
import pg from 'pg'
import { openDatabase } from '../src/db/database.ts'
import { removeEmbeddedData } from '../src/db/embedded/remove.ts'
import { startEmbeddedServer } from '../src/db/embedded/server.ts'
import { migrate } from '../src/db/migrate.ts'
import { parentWakes } from '../src/engine/maintenance/handlers/parent-wakes.ts'
import { maintenanceContext } from '../test/support/maintenance.ts'

// npm run tick-cost: what a tick of the parent-wake reconciler costs the server, planning included, in a large database:
// nobody waits; many wait for open children; 100 of them are stuck; and the same after very many past wakes. Then how many
// ticks it takes to find a parent whose counter is wrong and that nothing else shows.

const options = new Command()
  .option('--jobs <n>', 'jobs in the database', Number, 1_000_000)
  .option('--waiting <n>', 'parents that wait', Number, 100_000)
  .option('--wakes <n>', 'past wakes', Number, 1_000_000)
  .option('--ticks <n>', 'ticks of each measurement', Number, 20)
  .option('--statements', 'what each statement of the last tick cost', false)
  .parse()
  .opts<{ jobs: number; waiting: number; wakes: number; ticks: number; statements: boolean }>()

const STUCK = 100
const folder = await mkdtemp(path.join(os.tmpdir(), 'coppice-tick-'))
const server = await startEmbeddedServer({
  dataDir: folder,
  durable: true,
  settings: { shared_preload_libraries: 'pg_stat_statements', 'pg_stat_statements.track_planning': 'on' },
})
const { connectionString } = server
const pool = new pg.Pool({ connectionString, max: 1 })
const db = openDatabase({ connectionString, poolSize: 2 })
const sql = (text: string, values: unknown[] = []) => pool.query(text, values)
const context = maintenanceContext(db)
const handler = parentWakes(1000)

const COSTS = `select coalesce(substring(query from 'coppice:([a-z.-]+)'), left(query, 30)) as statement,
    calls::int, round(total_plan_time::numeric, 2) as plan, round(total_exec_time::numeric, 2) as exec
  from pg_stat_statements where query not like '%pg_stat_statements%' order by total_plan_time + total_exec_time desc`

/** Runs one tick; ms of the server's time, and ms of the whole. */
async function tick(): Promise<{ server: number; whole: number }> {
  await sql('select pg_stat_statements_reset()')
  const began = performance.now()
  await handler.run(context)
  const whole = performance.now() - began
  const { rows } = await sql(`select coalesce(sum(total_exec_time + total_plan_time), 0)::float8 as ms
    from pg_stat_statements where query not like '%pg_stat_statements%'`)
  return { server: rows[0].ms, whole }
}

async function measure(label: string, goal: number, before: () => Promise<unknown> = async () => {}): Promise<void> {
  const times: { server: number; whole: number }[] = []
  // The first ones meet cold caches and plans: a loop that runs every second does not.
  for (let n = -3; n < options.ticks; n++) {
    await before()
    const time = await tick()
    if (n >= 0) times.push(time)
  }
  const sorted = (of: 'server' | 'whole') => times.map((time) => time[of]).sort((a, b) => a - b)
  const at = (values: number[], share: number) => Number(values[Math.floor(share * (values.length - 1))]!.toFixed(2))
  const [server, whole] = [sorted('server'), sorted('whole')]
  const figures = { serverMs: at(server, 0.5), serverMsMax: at(server, 1), wholeMs: at(whole, 0.5) }
  console.log(JSON.stringify({ label, ...figures, goalMs: goal, met: figures.serverMs < goal }))
  if (options.statements) console.table((await sql(COSTS)).rows)
}

/** Jobs that ended long ago. `parents`: each was woken once, with receipt and events. */
async function addFinished(count: number, parents: boolean): Promise<void> {
  const receipts = `, receipt as (
    insert into coppice.wake_receipt (parent_id, child_set_key, operation_id, wave, source, delivered_attempt)
    select id, md5(id::text), 'job_children_completed:' || id, 1, 'edge', 2 from made)
  insert into coppice.job_event (kind, job_id, tree_id, type, "from", "to", phase, wave, attempt, version, actor)
  select 'moved', id, id, 'past', 'waiting', 'queued', 'aggregate', 1, 1, 4, 'test' from made`
  for (let done = 0; done < count; done += 100_000) {
    await sql(`with made as (
      insert into coppice.job (id, tree_id, type, state, phase, wave, finished_at)
      select id, id, 'past', 'completed', ${parents ? `'aggregate', 1` : `'ingest', 0`}, now()
      from (select uuidv7() as id from generate_series(1, ${Math.min(100_000, count - done)})) ids
      returning id)${parents ? receipts : ' select count(*) from made'}`)
  }
}

/**
 * Parents that wait for `each - 1` children that ended and one that is queued. They began to wait in the order in which
 * they were enqueued, and their ids are in the order of time, as real ones are.
 */
async function addWaiting(count: number, each: number): Promise<void> {
  for (let done = 0; done < count; done += 10_000) {
    await sql(`with parent as (
      insert into coppice.job (id, tree_id, type, state, child_count, open_children, spawn_wave, waiting_since)
      select id, id, 'parent', 'waiting', ${each}, 1, 1, now() - (${count - done} - n) * interval '1 second'
      from (select uuidv7() as id, n from generate_series(1, ${Math.min(10_000, count - done)}) n) ids
      returning id)
    insert into coppice.job (id, tree_id, parent_id, parent_wave, depth, type, state, completion_epoch)
    select uuidv7(), id, id, 1, 1, 'child', case when n = 1 then 'queued' else 'completed' end, (n > 1)::int
    from parent, generate_series(1, ${each}) n`)
  }
}

const settle = async () => {
  await sql('vacuum analyze coppice.job')
  await sql('vacuum analyze coppice.wake_receipt')
  await sql('vacuum analyze coppice.job_event')
  await sql('checkpoint')
}

/** Lets some parents wait with all their children ended, as if their wakes had been lost. By `version`, no trigger sees it. */
const loseWakes = async () => {
  await sql(`with stuck as (
      select id from coppice.job where state = 'waiting' order by waiting_since desc limit ${STUCK}),
    ended as (update coppice.job c set state = 'completed', version = version + 1, completion_epoch = completion_epoch + 1
      from stuck where c.parent_id = stuck.id and c.state = 'queued')
    update coppice.job p set open_children = 0 from stuck where p.id = stuck.id`)
}

/** Ticks until a parent is woken whose counter says that a child is open, though none is. */
async function ticksUntilFound(): Promise<void> {
  const { rows } = await sql(`select id from coppice.job where state = 'waiting' order by id limit 1`)
  await sql(`update coppice.job set state = 'completed', version = version + 1 where parent_id = $1`, [rows[0].id])
  let ticks = 0
  const woken = async () => (await sql('select state from coppice.job where id = $1', [rows[0].id])).rows[0].state
  while ((await woken()) === 'waiting') {
    await handler.run(context)
    ticks++
    if (ticks > options.waiting) throw new Error('The audit did not find it')
  }
  const round = Math.ceil(options.waiting / 1000) + 1
  console.log(JSON.stringify({ label: 'wrong counter found by the audit', ticks, round, met: ticks <= round }))
}

try {
  await migrate({ connectionString, schema: db.schema })
  await sql('create extension if not exists pg_stat_statements')
  await addFinished(options.jobs, false)
  await settle()
  await measure('nobody waits', 1)
  await sql('truncate coppice.job cascade')
  await addWaiting(options.waiting, Math.max(1, Math.round(options.jobs / options.waiting) - 1))
  await settle()
  await measure('many wait, none stuck', 5)
  await measure(`many wait, ${STUCK} stuck`, 50, loseWakes)
  await addFinished(options.wakes, true)
  await settle()
  await measure('many wait, none stuck, after past wakes', 5)
  await measure(`many wait, ${STUCK} stuck, after past wakes`, 50, loseWakes)
  await ticksUntilFound()
  await sql(`update coppice.job set state = 'completed', version = version + 1 where state = 'waiting'`)
  await settle()
  await measure('nobody waits, after past wakes', 1)
} finally {
  await db.close()
  await pool.end()
  await server.stop()
  await removeEmbeddedData(folder)
  await rm(folder, { recursive: true, force: true })
}
