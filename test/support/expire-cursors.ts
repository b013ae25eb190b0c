import type pg from 'pg'
import { until } from './until.ts'

/**
 * Expires every cursor that there is, as retention does, and none that is made later: the floor goes to where the oldest
 * open transaction of the server is now. Those of other test files hold it up, so that is waited for.
 */
export async function expireCursors(pool: pg.Pool): Promise<void> {
  const oldest = async () => {
    const { rows } = await pool.query('select pg_snapshot_xmin(pg_current_snapshot())::text as xmin')
    return BigInt(rows[0].xmin)
  }
  const before = await oldest()
  await until(
    async () => {
      await pool.query('select pg_current_xact_id()')
      return (await oldest()) > before
    },
    { timeout: 40_000, what: 'the transactions of before to be over' },
  )
  await pool.query('update coppice.feed_floor set floor = pg_snapshot_xmin(pg_current_snapshot())')
}
