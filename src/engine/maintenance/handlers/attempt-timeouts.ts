import { statement } from '../../../db/statement.ts'
import { ABANDONED_COLUMNS, type AbandonedJob, giveBack } from '../../lease/give-back.ts'
import { MAINTENANCE_ACTOR, type MaintenanceHandler } from '../handler.ts'

/** The worker ends its attempts itself, by timers: this much later it has evidently not. In ms. */
const DEFAULT_MARGIN_MS = 10_000
const PAGE = 500

interface OverdueJob extends AbandonedJob {
  limit_ms: number
}

/**
 * Ends attempts that ran past the limit of their phase and that their worker has not ended: its event loop is blocked,
 * while its heartbeat goes on.
 */
export function attemptTimeouts(intervalMs: number, marginMs = DEFAULT_MARGIN_MS): MaintenanceHandler {
  return {
    name: 'attempt-timeouts',
    intervalMs,
    async run({ db, logger, signal, changed }) {
      for (let after: string | null = null; !signal.aborted; ) {
        const rows: OverdueJob[] = await db.query(overdueJobs, [after, PAGE, marginMs])
        if (rows.length === 0) return
        const { retried, failed } = await giveBack(
          db,
          rows,
          (row) => ({ message: `The attempt ran past its limit of ${row.limit_ms} ms.`, code: 'TIMEOUT' }),
          { actor: MAINTENANCE_ACTOR, logger },
        )
        if (retried + failed > 0) changed()
        after = rows.at(-1)!.id
      }
    },
  }
}

// Reads the running jobs only. A limit that is no number, from SQL by hand, is none.
const overdueJobs = statement<OverdueJob>(
  'maintenance.overdue-jobs',
  (t) => `
  with running as (
    select ${ABANDONED_COLUMNS}, j.claimed_at,
      case when jsonb_typeof(j.timeouts -> j.phase) = 'number' then (j.timeouts ->> j.phase)::float8 end as limit_ms
    from ${t.job} j
    where j.state = 'running' and j.claim_token is not null and ($1::uuid is null or j.id > $1)
  )
  select * from running
  where claimed_at < now() - (limit_ms + $3) * interval '1 millisecond'
  order by id limit $2`,
)
