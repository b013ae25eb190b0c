import { validate } from 'uuid'
import type { Database } from '../../db/database.ts'
import type { Job } from '../job.ts'
import { findOrphans } from '../orphans.ts'
import type { Heavy } from '../reads/columns.ts'
import { decodeCursor, encodeCursor, isInstant } from '../reads/cursor.ts'
import { jobsById } from '../reads/jobs-by-id.ts'
import { type Page, type PageRequest, pageOf } from '../reads/page.ts'
import { type DueParent, findDueParents } from '../reconcile/due-parents.ts'
import { FIRST_WAITING, type WaitingCursor } from '../reconcile/waiting-page.ts'

/*
 * What maintenance would do, as pages of jobs that read only. Each comes from what the maintenance itself goes by.
 */

const CURSOR = 'stuck'

/**
 * The parents that the reconciler would wake now, or withholds: for their assignee, as ephemeral, or because they are to
 * fail by a child. The longest wait first; archived ones are in no list. It goes over the waiting parents until the page is full: about a second for
 * 100,000 of them. A page from the back goes over all that are in front of it.
 *
 * @throws {InvalidCursorError}
 */
export async function stuckParents(db: Database, page: PageRequest, heavy: Heavy): Promise<Page<Job>> {
  const before = placeOf(page.before)
  let found: DueParent[] = []
  for (let cursor: WaitingCursor | null = placeOf(page.after) ?? FIRST_WAITING; cursor !== null; ) {
    const { parents, next } = await findDueParents(db, { limit: page.size + 1, after: cursor })
    const within = parents.filter(({ place }) => before === null || isBefore(place, before))
    found.push(...within.filter((parent) => parent.withheld !== 'archived'))
    if (page.backwards) found = found.slice(-(page.size + 1))
    const full = !page.backwards && found.length > page.size
    cursor = full || within.length < parents.length ? null : next
  }
  const rows = page.backwards ? found.reverse() : found
  const edge = (parent: DueParent) => ({
    cursor: encodeCursor(CURSOR, [parent.place.since, parent.place.id]),
    node: parent.id,
  })
  return withJobs(db, pageOf(rows, page, edge), heavy)
}

/**
 * The active jobs that the orphan sweep would cancel now, by parent and id.
 *
 * @throws {InvalidCursorError}
 */
export async function orphans(db: Database, page: PageRequest, heavy: Heavy): Promise<Page<Job>> {
  const { edges, ...info } = await findOrphans(db, page)
  return withJobs(db, { edges: edges.map(({ cursor, node }) => ({ cursor, node: node.id })), ...info }, heavy)
}

/** The page with the jobs of its ids; without those that were deleted in between. */
async function withJobs(db: Database, { edges, ...info }: Page<string>, heavy: Heavy): Promise<Page<Job>> {
  const ids = edges.map(({ node }) => node)
  const jobs = ids.length === 0 ? [] : await jobsById(db, ids, heavy)
  const byId = new Map(jobs.map((job) => [job.id, job]))
  return {
    edges: edges.flatMap(({ cursor, node }) => {
      const job = byId.get(node)
      return job ? [{ cursor, node: job }] : []
    }),
    ...info,
  }
}

function placeOf(cursor: string | null): WaitingCursor | null {
  if (cursor === null) return null
  const [since, id] = decodeCursor(CURSOR, cursor, [isInstant, validate]) as [string, string]
  return { since, id }
}

/** Both texts of a place are in its order. */
function isBefore(a: WaitingCursor, b: WaitingCursor): boolean {
  return a.since === b.since ? a.id < b.id : a.since < b.since
}
