import type { Database } from '../../../db/database.ts'
import { statement } from '../../../db/statement.ts'
import type { JobTable } from '../../../db/tables.ts'
import { failJob } from '../../cascade.ts'
import type { AttemptError } from '../../job.ts'
import { wakeParent } from '../../wake.ts'
import { each } from '../each.ts'
import { MAINTENANCE_ACTOR, type MaintenanceHandler } from '../handler.ts'

const PAGE = 100

interface OverdueParent {
  id: string
  wait_ms: number
  aggregates: boolean
  waiting_since: Date
  deadline: string
}

/** Ends waits that took longer than their limit: the job fails, or aggregates what there is, as it chose. */
export function waitTimeouts(intervalMs: number): MaintenanceHandler {
  return {
    name: 'wait-timeouts',
    intervalMs,
    async run({ db, signal, changed }) {
      for (let after: OverdueParent | undefined; !signal.aborted; ) {
        const rows: OverdueParent[] = await db.query(overdueParents, [after?.deadline ?? null, after?.id ?? null, PAGE])
        if (rows.length === 0) return
        await each(rows, signal, async (row) => {
          if (await endWait(db, row)) changed()
        })
        after = rows.at(-1)
      }
    },
  }
}

/** Ends the very wait that was found overdue: the parent may have been woken, and wait again, since it was read. */
async function endWait(db: Database, row: OverdueParent): Promise<boolean> {
  const actor = MAINTENANCE_ACTOR
  const provided = (now: JobTable) => now.waiting_since?.getTime() === row.waiting_since.getTime()
  if (row.aggregates) {
    const outcome = await wakeParent(db, row.id, { source: 'timeout', actor, forced: true, provided })
    return outcome?.outcome === 'woken'
  }
  const error: AttemptError = {
    message: `It waited for its children longer than its limit of ${row.wait_ms} ms.`,
    code: 'TIMEOUT',
  }
  const ends = await failJob(db, row.id, { actor, why: (now) => (provided(now) ? error : null), from: ['waiting'] })
  return ends !== null
}

const DEADLINE = `((j.waiting_since at time zone 'UTC') + interval '1 millisecond' *
      case when jsonb_typeof(j.timeouts -> 'wait') = 'number' then (j.timeouts ->> 'wait')::float8 end)`

// By the index job_wait_deadline, so that the waits which are within their limits cost nothing. Parents that no wake can
// reach now (assignee not active, to be failed by a child) are left out here, or they would be looked at again and again.
const overdueParents = statement<OverdueParent>(
  'maintenance.overdue-parents',
  (t) => `
  select j.id, j.waiting_since, (j.timeouts ->> 'wait')::float8 as wait_ms, ${DEADLINE}::text as deadline,
    j.timeouts ->> 'onWaitTimeout' = 'aggregate' as aggregates
  from ${t.job} j
  where j.state = 'waiting' and j.timeouts ? 'wait' and j.archived_at is null and j.failing_child_id is null
    and ${DEADLINE} < now() at time zone 'UTC'
    and ($1::text is null or (${DEADLINE}, j.id) > ($1::timestamp, $2::uuid))
    and (j.timeouts ->> 'onWaitTimeout' is distinct from 'aggregate' or j.assignee_id is null
      or exists (select from ${t.assignee} a where a.id = j.assignee_id and a.status = 'active'))
  order by ${DEADLINE}, j.id limit $3`,
)
