import pg from 'pg'
import { PgBoss } from 'pg-boss'
import { untilNone } from '../measure.mjs'

/**
 * With `flow`, its own trees; without, a fan-in by hand: one decrement for each parent of a fetched batch, as a careful
 * user writes it, or, with `eachChild`, one for each child, as most do.
 */
export async function open({ postgres }, { batchSize, workers, flow, eachChild }, handlers) {
  const boss = new PgBoss({
    connectionString: postgres,
    max: 10,
    useListenNotify: true,
    flowIntervalSeconds: 1,
    warningSlowQuerySeconds: 60,
  })
  boss.on('error', (error) => console.error(error.message))
  await boss.start()
  for (const queue of ['flat', 'child', 'parent']) await boss.createQueue(queue, { notify: true })
  const pool = new pg.Pool({ connectionString: postgres, max: 10 })
  await pool.query('create table fan_in (parent int primary key, remaining int not null)')

  const ended = async (parent, children) => {
    const { rows } = await pool.query(
      'update fan_in set remaining = remaining - $2 where parent = $1 returning remaining',
      [parent, children],
    )
    if (rows[0].remaining === 0) await boss.send('parent', { parent })
  }
  const fanIn = async (jobs) => {
    if (eachChild) return Promise.all(jobs.map((job) => ended(job.data.parent, 1)))
    const counts = new Map()
    for (const { data } of jobs) counts.set(data.parent, (counts.get(data.parent) ?? 0) + 1)
    for (const [parent, children] of counts) await ended(parent, children)
  }
  const options = (size) => ({
    batchSize: size,
    localConcurrency: workers,
    pollingIntervalSeconds: 0.5,
    burstWhenBatchFull: true,
    notifyPollingIntervalSeconds: 0.5,
  })
  const child = (parent, index) => ({ data: { parent, index } })
  return {
    addFlat: (numbers) =>
      boss.insert(
        'flat',
        numbers.map((number) => ({ data: { number } })),
      ),
    async addTrees(numbers, children) {
      const indexes = Array.from({ length: children }, (_, index) => index)
      if (!flow) {
        await pool.query('insert into fan_in select unnest($1::int[]), $2', [numbers, children])
        await boss.insert(
          'child',
          numbers.flatMap((parent) => indexes.map((index) => child(parent, index))),
        )
        return
      }
      const ref = (parent, index) => `${parent}-${index}`
      await boss.flow(
        numbers.flatMap((parent) => [
          ...indexes.map((index) => ({ ref: ref(parent, index), name: 'child', ...child(parent, index) })),
          {
            ref: `parent-${parent}`,
            name: 'parent',
            data: { parent },
            dependsOn: indexes.map((index) => ref(parent, index)),
          },
        ]),
      )
    },
    async work() {
      await boss.work('flat', options(batchSize), async (jobs) => jobs.forEach(handlers.flat))
      await boss.work('child', options(batchSize), async (jobs) => {
        jobs.forEach(handlers.child)
        if (!flow) await fanIn(jobs)
      })
      await boss.work('parent', options(100), async (jobs) => jobs.forEach(handlers.parent))
    },
    committed: () =>
      untilNone(
        pool,
        `select count(*) from pgboss.job where name in ('flat', 'child', 'parent') and state < 'completed'`,
      ),
    async close() {
      await boss.stop({ graceful: false, close: true })
      await pool.end()
    },
  }
}
