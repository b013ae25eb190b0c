import { statement } from '../../db/statement.ts'
import { planOnce } from '../../db/transaction.ts'
import type { MaintenanceContext } from '../maintenance/handler.ts'
import { WITHHELD_SQL, type Withheld } from './due-parents.ts'
import { putRight } from './recount.ts'
import { FIRST_WAITING, isOpenChildOf, type WaitingCursor, waitingPage } from './waiting-page.ts'
import { type Tally, wakeDue } from './wake-due.ts'

/** Waiting parents that a tick looks at. */
const PAGE = 1000
/** Open children up to which a parent's counter is compared exactly; of more, no more are read. */
const EXACT = 1000
/** Open children that a tick reads for comparing counters, about. Where there are more, chance decides whose are compared. */
const CHILDREN = 10_000

/** Where the audit stands between two ticks. */
export interface AuditState extends WaitingCursor {
  /** When its round began, by the database's clock in ms. */
  startedAt: number
}

/** Where the audit is to go on. */
export interface AuditProgress {
  /** Null: at the beginning of a round. */
  audit: AuditState | null
}

/**
 * One step of the rotating audit: compares the next waiting parents with their children's rows, so that no counter is
 * trusted for longer than a round. Whether a child is open is looked up for each of them; how many are, as far as the
 * bounds go. Parents that are due by that are woken as far as the tick's budget goes; all other counters that were wrong
 * are put right, which makes the rest of the due ones candidates of the next tick.
 */
export async function auditNext(
  context: MaintenanceContext,
  { tally, from, now, next }: { tally: Tally; from: AuditState | null; now: number; next: AuditProgress },
): Promise<void> {
  const { since, id, startedAt } = from ?? { ...FIRST_WAITING, startedAt: now }
  const began = performance.now()
  const page = await planOnce(
    context.db,
    async (tx) => (await tx.query(readAuditPage, [since, id, PAGE, CHILDREN]))[0]!,
  )
  const { looked, lastSince, lastId, wrong } = page
  next.audit = looked === PAGE ? { since: lastSince!, id: lastId!, startedAt } : null
  const due = wrong.filter((parent) => parent.found === 0 && parent.withheld === null).map((parent) => parent.id)
  const drifted = wrong.map((parent) => parent.id).filter((wrongId) => !due.includes(wrongId))
  await putRight(context, drifted).finally(async () => putRight(context, await wakeDue(context, tally, due)))
  if (next.audit === null) context.metrics.auditRound.set((now - startedAt + performance.now() - began) / 1000)
}

interface AuditPage {
  looked: number
  lastSince: string | null
  lastId: string | null
  /** Parents whose counter the rows contradict. */
  wrong: { id: string; found: number; withheld: Withheld | null }[]
}

// Each parent's children are read through job_open_children: `most` of them, which is one more than the counter says, or
// only one where the bounds do not allow for more. Parents at 0 by their counters and by their rows are candidates, which
// have been looked at before.
const readAuditPage = statement<AuditPage>(
  'reconcile.read-audit-page',
  (t) => `
  with ${waitingPage(t)},
  exact as (select page.*, least(greatest(open_children, 0), ${EXACT}) + 1 as exact from page),
  asked as (
    select e.*, case when random() * (select sum(exact) from exact) <= $4 then exact else 1 end as most from exact e
  ),
  compared as materialized (
    select p.*, (
      select count(*)::int from (select from ${t.job} c where ${isOpenChildOf('p.id')} limit p.most) open) as found
    from asked p
  ),
  wrong as (
    select p.id, p.found, (
      select ${WITHHELD_SQL} from (select) one left join ${t.assignee} a on a.id = p.assignee_id) as withheld
    from compared p
    where p.found > p.open_children or (p.found < p.most and p.found <> p.open_children)
  ),
  last as (select since, id from page order by since desc, id desc limit 1)
  select (select count(*)::int from page) as looked, last.since::text as "lastSince", last.id as "lastId",
    (select coalesce(json_agg(wrong), '[]') from wrong) as wrong
  from (select) one left join last on true`,
  { prepared: true },
)
