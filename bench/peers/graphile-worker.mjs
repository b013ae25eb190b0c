import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import pg from 'pg'
import { untilNone } from '../measure.mjs'

/** It has no trees: the fan-in is written by hand, a counter a parent, one statement at the end of each child. */
const CHILD_ENDED = `
  with counted as (update fan_in set remaining = remaining - 1 where parent = $1 returning remaining)
  select graphile_worker.add_job('parent', json_build_object('parent', $1::int)) from counted where remaining = 0`

export async function open({ postgres }, { concurrency, localQueue }, handlers) {
  const logger = new Logger(() => () => {})
  const pgPool = new pg.Pool({ connectionString: postgres, max: 20 })
  pgPool.on('connect', (client) => client.on('error', () => {}))
  const pool = new pg.Pool({ connectionString: postgres, max: 10 })
  const utils = await makeWorkerUtils({ pgPool, logger })
  await utils.migrate()
  await pool.query('create table fan_in (parent int primary key, remaining int not null)')
  const taskList = {
    flat: async () => handlers.flat(),
    child: async ({ parent }) => {
      handlers.child()
      await pool.query(CHILD_ENDED, [parent])
    },
    parent: async () => handlers.parent(),
  }
  const batching = localQueue
    ? { localQueue: { size: localQueue }, completeJobBatchDelay: 0, failJobBatchDelay: 0 }
    : undefined
  let runner
  return {
    addFlat: (numbers) => utils.addJobs(numbers.map((number) => ({ identifier: 'flat', payload: { number } }))),
    async addTrees(numbers, children) {
      await pool.query('insert into fan_in select unnest($1::int[]), $2', [numbers, children])
      await utils.addJobs(
        numbers.flatMap((parent) =>
          Array.from({ length: children }, (_, index) => ({ identifier: 'child', payload: { parent, index } })),
        ),
      )
    },
    async work() {
      const preset = { worker: { concurrentJobs: concurrency, ...batching } }
      runner = await run({ pgPool, logger, noHandleSignals: true, preset, taskList })
    },
    // It deletes what has ended: it keeps no history.
    committed: () => untilNone(pool, 'select count(*) from graphile_worker._private_jobs'),
    async close() {
      await runner.stop()
      await utils.release()
      await pgPool.end()
      await pool.end()
    },
  }
}
