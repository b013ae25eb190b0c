import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { untilNone } from '../measure.mjs'

// What PostgreSQL and node-postgres can do at all: batches, no history, no retries, no leases. Nobody's library; the
// ceiling that the others are seen under.

const TABLE = `
  create table task (
    id bigint generated always as identity primary key, parent bigint, kind text not null, state text not null,
    open int not null default 0, payload jsonb, result jsonb, created_at timestamptz not null default now(),
    started_at timestamptz, ended_at timestamptz
  ) with (fillfactor = 70);
  create index on task (kind, id) where state = 'ready';
  create index on task (id) where state <> 'done'`

const CLAIM = `
  with next as materialized (
    select id from task where state = 'ready' and kind = $1 order by id limit $2 for update skip locked)
  update task t set state = 'running', started_at = now() from next where t.id = next.id returning t.id`

const END = `update task set state = 'done', ended_at = now(), result = 'null' where id = any($1) and state = 'running'`

// Ends a batch, counts down each parent once, and makes those at 0 ready. Parents are locked in order of id.
const END_CHILDREN = `
  with ended as (
    update task set state = 'done', ended_at = now(), result = 'null' where id = any($1) and state = 'running'
    returning parent),
  per_parent as materialized (select parent, count(*)::int as n from ended group by parent),
  locked as materialized (
    select id from task where id in (select parent from per_parent) order by id for no key update),
  counted as (
    update task p set open = p.open - c.n, state = case when p.open = c.n then 'ready' else p.state end
    from per_parent c join locked l on l.id = c.parent where p.id = c.parent
    returning p.open)
  select pg_notify('task', '') from counted where open = 0`

const ADD_TREES = `
  with parent as (
    insert into task (kind, state, open) select 'parent', 'waiting', $2 from unnest($1::int[]) returning id),
  child as (
    insert into task (kind, state, parent, payload)
    select 'child', 'ready', id, jsonb_build_object('index', i) from parent, generate_series(1, $2) i)
  select pg_notify('task', '')`

const ADD_FLAT = `
  insert into task (kind, state, payload) select 'flat', 'ready', jsonb_build_object('number', n) from unnest($1::int[]) n`

export async function open({ postgres }, { batchSize, workers }, handlers) {
  const pool = new pg.Pool({ connectionString: postgres, max: 2 * workers + 4 })
  await pool.query(TABLE)
  const listener = new pg.Client({ connectionString: postgres })
  await listener.connect()
  await listener.query('listen task')
  listener.setMaxListeners(0)
  const stop = new AbortController()
  const loops = []

  const query = (client, name, text, values) => client.query({ name, text, values })
  async function loop(kind, handler, end) {
    const client = await pool.connect()
    while (!stop.signal.aborted) {
      const rung = new AbortController()
      const notified = once(listener, 'notification', { signal: rung.signal }).catch(() => {})
      const { rows } = await query(client, 'claim', CLAIM, [kind, batchSize])
      for (const _ of rows) await handler()
      if (rows.length > 0) await query(client, kind, end, [rows.map((row) => row.id)])
      else await Promise.race([notified, sleep(50, undefined, { signal: rung.signal }).catch(() => {})])
      rung.abort()
    }
    client.release()
  }

  return {
    addFlat: (numbers) => query(pool, 'add-flat', ADD_FLAT, [numbers]),
    addTrees: (numbers, children) => query(pool, 'add-trees', ADD_TREES, [numbers, children]),
    async work() {
      for (let n = 0; n < workers; n++) {
        loops.push(loop('flat', handlers.flat, END), loop('child', handlers.child, END_CHILDREN))
      }
      loops.push(loop('parent', handlers.parent, END))
    },
    committed: () => untilNone(pool, `select exists (select from task where state <> 'done')`),
    async close() {
      stop.abort()
      await Promise.all(loops)
      await listener.end()
      await pool.end()
    },
  }
}
