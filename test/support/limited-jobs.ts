import { setTimeout as sleep } from 'node:timers/promises'
import type pg from 'pg'
import { z } from 'zod'
import { type AnyDefinition, declareJob, defineJob } from '../../src/index.ts'

/** Jobs that may fail before they succeed. */
const payload = z.object({ user: z.string(), failures: z.number().default(0) })

/** At most three at once for each user; one at once of all; and as many as there are slots. */
export const perUser = declareJob({ type: 'per-user', payload })
export const single = declareJob({ type: 'single', payload })
export const unlimited = declareJob({ type: 'unlimited', payload })

/** The table that {@link limitedJobs} write their times to. */
export const WATCH = `create table watch (
  type text not null, key text not null, started timestamptz not null default clock_timestamp(), ended timestamptz
)`

/** Most attempts of each type and key that {@link WATCH} has seen at once. */
export const MOST_AT_ONCE = `
  select a.type, a.key, max(overlap.n)::int as most from watch a
  cross join lateral (
    select count(*) as n from watch b
    where b.type = a.type and b.key = a.key and b.started <= a.started and coalesce(b.ended, 'infinity') > a.started
  ) overlap
  group by a.type, a.key order by a.type, a.key`

/**
 * Definitions whose handlers note in the database when they begin and end: both lie within the time that the job is
 * RUNNING, so that attempts that overlap in the notes did so in truth.
 */
export function limitedJobs(pool: pg.Pool): AnyDefinition[] {
  const source = (type: string, key: (user: string) => string) => ({
    backoff: { initial: 5, cap: 20 },
    maxRetries: 20,
    async run(ctx: { payload: z.output<typeof payload>; attempt: number }) {
      const { user, failures } = ctx.payload
      const { rows } = await pool.query('insert into watch (type, key) values ($1, $2) returning ctid', [
        type,
        key(user),
      ])
      await sleep(2 + Math.random() * 6)
      await pool.query('update watch set ended = clock_timestamp() where ctid = $1', [rows[0].ctid])
      if (ctx.attempt <= failures) throw new Error('not yet')
    },
  })
  const byUser = ({ user }: { user: string }) => user
  return [
    defineJob(perUser, { ...source('per-user', (user) => user), concurrency: { limit: 3, key: byUser } }),
    defineJob(single, { ...source('single', () => ''), concurrency: { limit: 1 } }),
    defineJob(
      unlimited,
      source('unlimited', () => ''),
    ),
  ]
}
