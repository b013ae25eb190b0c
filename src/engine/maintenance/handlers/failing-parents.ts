import { statement } from '../../../db/statement.ts'
import { failFailingParents } from '../../cascade.ts'
import { each } from '../each.ts'
import { MAINTENANCE_ACTOR, type MaintenanceHandler } from '../handler.ts'

const PAGE = 100

/**
 * Fails parents that a child's failure has marked. The process that marked one fails it in its next transaction: this is
 * for those whose process died in between.
 */
export function failingParents(intervalMs: number): MaintenanceHandler {
  return {
    name: 'failing-parents',
    intervalMs,
    async run({ db, signal, changed }) {
      for (let after: string | null = null; !signal.aborted; ) {
        const rows: { id: string }[] = await db.query(markedParents, [after, PAGE])
        if (rows.length === 0) return
        await each(rows, signal, async ({ id }) => {
          const { failed } = await failFailingParents(db, [id], { actor: MAINTENANCE_ACTOR })
          if (failed.length > 0) changed()
        })
        after = rows.at(-1)!.id
      }
    },
  }
}

// By the partial index job_failing: next to nothing in steady state.
const markedParents = statement<{ id: string }>(
  'maintenance.marked-parents',
  (t) => `
  select j.id from ${t.job} j
  where j.failing_child_id is not null and j.state in ('queued', 'waiting', 'paused')
    and ($1::uuid is null or j.id > $1)
  order by j.id limit $2`,
)
