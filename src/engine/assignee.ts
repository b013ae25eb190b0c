import type { Database } from '../db/database.ts'
import { statement } from '../db/statement.ts'
import { transaction } from '../db/transaction.ts'
import { ValidationError } from './errors.ts'
import { faultOfText, NAME } from './input/text.ts'
import { assigneeIs, SETTLED } from './reconcile/candidates.ts'
import { wakeParent } from './wake.ts'

export const ASSIGNEE_STATUSES = ['active', 'paused', 'stopped', 'pending_approval'] as const
/** Whether someone or something is able to act. Only `active` lets its jobs be claimed and woken. */
export type AssigneeStatus = (typeof ASSIGNEE_STATUSES)[number]

/** Someone or something whose jobs run only while it is active. */
export interface Assignee {
  id: string
  status: AssigneeStatus
  updatedAt: Date
}

/**
 * Makes an assignee, or changes its status. Activation then delivers the wakes that were withheld, each in a transaction
 * of its own behind the one that activates: a settle that saw it inactive holds its row for share until it commits, so
 * none slips between.
 *
 * @throws {ValidationError}
 */
export async function setAssignee(
  db: Database,
  id: string,
  status: AssigneeStatus,
  { actor }: { actor: string },
): Promise<{ assignee: Assignee; woken: string[] }> {
  const fault = faultOfText(id, NAME)
  if (fault !== undefined) throw ValidationError.of('id', fault)
  if (!ASSIGNEE_STATUSES.includes(status)) {
    throw ValidationError.of('status', `must be one of ${ASSIGNEE_STATUSES.join(', ')}`)
  }
  const [row] = await transaction(db, (tx) => tx.query(upsert, [id, status]))
  const assignee: Assignee = { id: row!.id, status, updatedAt: row!.updated_at }
  return { assignee, woken: status === 'active' ? await wakeWithheld(db, id, actor) : [] }
}

async function wakeWithheld(db: Database, assigneeId: string, actor: string): Promise<string[]> {
  const woken: string[] = []
  for (const ephemeral of [false, true]) {
    for (let after: string | null = null; ; ) {
      const page: { id: string }[] = await db.query(findWithheld, [assigneeId, ephemeral, after])
      for (const parent of page) {
        const wake = await wakeParent(db, parent.id, { source: 'edge', actor })
        if (wake?.outcome === 'woken') woken.push(parent.id)
      }
      const last = page.at(-1)
      if (!last) break
      after = last.id
    }
  }
  return woken
}

const upsert = statement<{ id: string; updated_at: Date }>(
  'assignee.set',
  (t) => `
  insert into ${t.assignee} (id, status) values ($1, $2)
  on conflict (id) do update set status = excluded.status,
    updated_at = case when ${t.assignee}.status = excluded.status then ${t.assignee}.updated_at else now() end
  returning id, updated_at`,
)

// By the partial index job_stuck.
const findWithheld = statement<{ id: string }>(
  'assignee.find-withheld',
  (t) => `
  select j.id from ${t.job} j
  where ${SETTLED} and j.ephemeral = $2 and ${assigneeIs('$1')} and ($3::uuid is null or j.id > $3)
  order by j.assignee_id, j.id limit 100`,
)
