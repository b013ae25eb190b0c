import { expect } from 'vitest'
import type { Database } from '../../src/db/database.ts'
import { failFailingParents } from '../../src/engine/cascade.ts'
import type { Outcome, WakeSource } from '../../src/engine/job.ts'
import { resumeJob } from '../../src/engine/pause.ts'
import { settle } from '../../src/engine/settle/settle.ts'
import { wakeParent } from '../../src/engine/wake.ts'
import { findViolations } from './invariants.ts'
import { type Exploration, type ExploreOptions, explore, type Race } from './isolation.ts'
import { createVerbs, type Verbs } from './verbs.ts'
import { proveWakes, readWakeLog, type WakeProof } from './wake-log.ts'

/** What a race came to, for its own checks: how its sessions ended, and the engine's verbs. */
export type RaceCheck<World> = (world: World, ends: Record<string, PromiseSettledResult<unknown>>) => Promise<void>

/** A race of the engine's verbs. */
export interface EngineRace<World> extends Omit<Race<World>, 'check'> {
  /** What must hold right after it, before anything else is run. */
  afterwards?: RaceCheck<World>
  /** What must hold once everything has been run to its end; `proof` is of the event log. */
  inTheEnd?: (world: World, proof: WakeProof) => Promise<void>
}

/** A wake by the event log. */
export interface LoggedWake {
  source: string
  operationId: string
  id: string
}

/** A database on which races are run, one after the other. */
export interface Races extends Verbs {
  /** A parent's wakes, in their order. */
  wakesOf(parent: string): Promise<LoggedWake[]>
  receiptOf(parent: string): Promise<Record<string, unknown> | undefined>
  /**
   * Runs a race through its interleavings. After each run every remaining job is run to its end, by claims alone, so that
   * a lost wake stays lost; then every invariant must hold, and the log must prove one wake for each wait, none early. No
   * deadlock may be met on the way.
   */
  race<World>(race: EngineRace<World>, options?: ExploreOptions): Promise<Exploration>
}

export async function createRaces(): Promise<Races> {
  const v = await createVerbs()
  return {
    ...v,
    async wakesOf(parent) {
      const { rows } = await v.test.pool.query(
        `select id, detail ->> 'source' as source, detail ->> 'operationId' as "operationId" from ${v.db.tables.jobEvent}
         where job_id = $1 and detail ? 'operationId' order by id`,
        [parent],
      )
      return rows
    },
    async receiptOf(parent) {
      const text = `select * from ${v.db.tables.wakeReceipt} where parent_id = $1`
      return (await v.test.pool.query(text, [parent])).rows[0]
    },
    async race({ setup, sessions, afterwards, inTheEnd }, options) {
      const exploration = await explore(
        v.test,
        {
          sessions,
          async setup() {
            await clear(v)
            return setup()
          },
          async check(world, ends) {
            await afterwards?.(world, ends)
            await runToTheEnd(v)
            expect(await findViolations(v.test.pool, { atRest: true })).toEqual([])
            const proof = await proveWakes(readWakeLog(v.test.pool), { atRest: true })
            expect(proof.faults).toEqual([])
            await inTheEnd?.(world, proof)
          },
        },
        options,
      )
      expect(exploration.conflicts).toEqual([])
      return exploration
    },
  }
}

/** The rows of the run before are gone, so that what is found is of this one. */
async function clear({ db, test }: Verbs): Promise<void> {
  const { job, jobEvent, wakeMark, assignee } = db.tables
  // Jobs first: the trigger on hand-written SQL writes an event and a mark for each.
  for (const table of [job, jobEvent, wakeMark, assignee]) await test.pool.query(`delete from ${table}`)
}

/** Completes what runs and what can be claimed, until nothing is left; nobody looks for parents that sleep. */
async function runToTheEnd(v: Verbs): Promise<void> {
  const { db, test } = v
  const actor = 'test'
  await test.pool.query(`update ${db.tables.assignee} set status = 'active' where status <> 'active'`)
  for (;;) {
    const paused = await idsOf(v, `state = 'paused'`)
    for (const id of paused) await resumeJob(db, id, { actor })
    const marked = await idsOf(v, `failing_child_id is not null and state in ('queued', 'waiting', 'paused')`)
    await failFailingParents(db, marked, { actor })
    await v.claim()
    const { rows } = await test.pool.query(
      `select id, tree_id as "treeId", parent_id as "parentId", depth, wave, claim_token as "claimToken",
         child_count as "childCount" from ${db.tables.job} where state = 'running'`,
    )
    if (paused.length + marked.length + rows.length === 0) return
    const outcome: Outcome = { kind: 'completed', result: null }
    const items = rows.map((job) => ({ job, outcome }))
    await settle(db, items, { actor })
  }
}

async function idsOf({ db, test }: Verbs, where: string): Promise<string[]> {
  const { rows } = await test.pool.query(`select id from ${db.tables.job} where ${where}`)
  return rows.map((row) => row.id)
}

/** A session that wakes the parent of its world. */
export const wake =
  (source: WakeSource) =>
  (db: Database, { parent }: { parent: string }) =>
    wakeParent(db, parent, { source, actor: 'test' })
